"""Ranks that each learn from a part take the steps that one process takes on the
whole."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from slm_lab.agent.algorithm import minibatches
from slm_lab.agent.algorithm.correction import OF_ESTIMATES
from tests.support import actor_critic, ppo, q_learning, reinforce, soft, vmpo
from tests.unit.parallel.all_reduce.learning_ranks import (
    SGD,
    UPDATES,
    Given,
    Rank,
    check_close,
    check_equal,
    columns,
    episodes,
    on_episodes,
    one_after_the_other,
    rollout,
    share_of,
    transitions,
)
from tests.unit.parallel.all_reduce.ranks import in_ranks


class Orders:
    """Stands in for the shuffle of PPO: all ranks use the samples in one common order.

    Each of W ranks has its own W-th part of every minibatch.
    """

    def __init__(self, seed, steps, num_envs, size, minibatch):
        rng = np.random.default_rng(seed)
        own = steps * num_envs // size
        self._num_envs = num_envs
        self._size = size
        self._minibatch = minibatch
        self._lists = [[rng.permutation(own) for _ in range(size)] for _ in range(100)]
        self._asked = defaultdict(int)
        self.rank_of = {}
        """By generator; None is one process that has everything."""

    def __call__(self, rows, recurrent, generator):
        rank = self.rank_of[generator]
        lists = self._lists[self._asked[generator]]
        self._asked[generator] += 1
        if rank is not None:
            return torch.from_numpy(lists[rank])
        each = self._num_envs // self._size
        whole = [
            index // each * self._num_envs + other * each + index % each
            for other, index in enumerate(lists)
        ]
        cuts = range(self._minibatch, len(whole[0]), self._minibatch)
        minibatches = zip(*(np.split(index, cuts) for index in whole), strict=True)
        return torch.from_numpy(
            np.concatenate([np.concatenate(parts) for parts in minibatches])
        )


def train_ppo(
    monkeypatch, size, changes, updates=UPDATES, steps=6, num_envs=None, make=ppo
):
    """One process and ranks on the same rollouts and minibatches: final vectors and
    reports."""
    num_envs = 2 * size if num_envs is None else num_envs
    minibatch = 5  # so that the last is smaller
    keys = {
        **SGD,
        "agent__net__clip_grad_val": None,
        **changes,
        "agent__algorithm__training_epoch": 3,
    }
    data = {
        many: make(
            **keys,
            agent__algorithm__time_horizon=steps,
            agent__algorithm__minibatch_size=minibatch * many,
            env__num_envs=num_envs if many > 1 else num_envs // size,
        )
        for many in (1, size)
    }
    wholes = [rollout(seed, steps, num_envs) for seed in range(updates)]
    orders = Orders(0, steps, num_envs, size, minibatch)
    monkeypatch.setattr(minibatches, "shuffled_order", orders)

    def train(group):
        member = Rank(data[1], group)
        orders.rank_of[member.learner._generator] = group.rank
        each = num_envs // size
        first = group.rank * each
        reports = [
            member.learn(columns(whole, first, first + each)) for whole in wholes
        ]
        return member, reports

    alone = Rank(data[size])
    orders.rank_of[alone.learner._generator] = None
    start = alone.vectors
    reports = [alone.learn(whole) for whole in wholes]
    return alone, start, reports, in_ranks(size, train)


PPO_KEYS = {
    "standardised": {},
    "not_normalised": {"agent__algorithm__normalize_advantages": None},
    "by_percentile": {"agent__algorithm__normalize_advantages": "percentile"},
    "scaled_targets": {"agent__algorithm__normalize_v_targets": True},
    "symlog": {
        "agent__algorithm__symlog": True,
        "agent__algorithm__normalize_v_targets": True,
    },
    "clipped_values": {"agent__algorithm__clip_vloss": True},
    "one_network": {"agent__net__shared": True},
    "clipped_gradients": {"agent__net__clip_grad_val": 0.1},
}


@pytest.mark.parametrize("changes", PPO_KEYS.values(), ids=PPO_KEYS.keys())
def test_ppo_on_parts_takes_the_steps_of_ppo_on_the_whole(monkeypatch, changes):
    alone, start, reports, ranks = train_ppo(monkeypatch, 2, changes)
    (first, rank_reports), (second, other_reports) = ranks
    check_equal(first.vectors, second.vectors)
    check_close(first.vectors, alone.vectors, start)
    assert rank_reports == other_reports
    assert first.learner.opt_step == alone.learner.opt_step == UPDATES * 3 * 3
    for ours, theirs in zip(rank_reports, reports, strict=True):
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)


@pytest.mark.parametrize(
    "changes", [{}, {"agent__algorithm__normalize_v_targets": True}]
)
def test_vmpo_on_parts_takes_the_steps_of_vmpo_on_the_whole(monkeypatch, changes):
    """The better half is that of all samples, and so are the temperature's loss and the
    divergence."""
    alone, start, reports, ranks = train_ppo(monkeypatch, 2, changes, make=vmpo)
    (first, rank_reports), (second, other_reports) = ranks
    check_equal(first.vectors, second.vectors)
    check_close(first.vectors, alone.vectors, start)
    assert rank_reports == other_reports
    for ours, theirs in zip(rank_reports, reports, strict=True):
        for name in ("policy_loss", "eta", "kl", "kl_alpha", "grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-6), name


def test_ranks_report_the_ppo_statistics_of_the_whole_batch(monkeypatch):
    """Means of means over equal parts: all but the explained variance, which is no
    mean."""
    _, _, reports, ranks = train_ppo(monkeypatch, 2, {}, updates=1)
    for _, rank_reports in ranks:
        for name in reports[0].keys() - set(OF_ESTIMATES):
            assert rank_reports[0][name] == pytest.approx(
                reports[0][name], rel=1e-3, abs=1e-5
            ), name


def test_four_ranks_equal_one_process(monkeypatch):
    alone, start, _, ranks = train_ppo(monkeypatch, 4, {}, updates=2)
    for member, _ in ranks:
        check_equal(member.vectors, ranks[0][0].vectors)
    check_close(ranks[0][0].vectors, alone.vectors, start)


def test_the_kl_over_all_ranks_ends_the_training_event_on_all(monkeypatch):
    """A rank's own KL would not end the event there, or would end it elsewhere."""
    bound = {
        "agent__algorithm__target_kl": 0.5,
        "agent__algorithm__normalize_advantages": None,
    }
    alone, start, _, ranks = train_ppo(monkeypatch, 2, bound, updates=8)
    (first, _), (second, _) = ranks
    assert 8 < alone.learner.opt_step < 8 * 9
    assert first.learner.opt_step == second.learner.opt_step == alone.learner.opt_step
    check_equal(first.vectors, second.vectors)
    check_close(first.vectors, alone.vectors, start)


KINDS = {
    "gae": {"agent__algorithm__lam": 0.95},
    "n_step": {"agent__algorithm__lam": None, "agent__algorithm__num_step_returns": 3},
    "scaled_targets": {"agent__algorithm__normalize_v_targets": True},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS.keys())
def test_actor_critic_on_parts_takes_the_steps_of_the_whole(changes):
    wholes = [rollout(seed) for seed in range(UPDATES)]
    data = actor_critic(**SGD, **changes)
    alone = Rank(data)
    start = alone.vectors
    reports = [alone.learn(whole) for whole in wholes]

    def train(group):
        member = Rank(data, group)
        first = 2 * group.rank
        rank_reports = [
            member.learn(columns(whole, first, first + 2)) for whole in wholes
        ]
        return member.vectors, rank_reports

    (first, rank_reports), (second, _) = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)
    for ours, theirs in zip(rank_reports, reports, strict=True):
        for name in ("loss", "grad_norm", "entropy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5)


LENGTHS = [(3, 9), (12, 2), (1, 1), (7, 4)]
"""Steps of two ranks, training event by training event."""


@pytest.mark.parametrize(
    "data",
    [
        on_episodes(actor_critic, agent__algorithm__normalize_v_targets=True),
        on_episodes(actor_critic, agent__net__clip_grad_val=0.1),
        on_episodes(reinforce),
        on_episodes(reinforce, agent__algorithm__center_return=False),
    ],
    ids=["actor_critic", "clipped", "reinforce_centred", "reinforce"],
)
def test_a_sample_weighs_the_same_wherever_it_was_made(data):
    """Of ranks whose episodes are of unequal lengths."""
    parts = [
        [episodes(10 * turn + rank, steps) for rank, steps in enumerate(lengths)]
        for turn, lengths in enumerate(LENGTHS)
    ]
    alone = Rank(data)
    start = alone.vectors
    for each in parts:
        alone.learn(one_after_the_other(each))

    def train(group, weighted=True):
        member = Rank(data, group)
        for each in parts:
            own = each[group.rank]
            member.learn(own, len(own.reward) if weighted else 1)
        return member.vectors

    first, second = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)
    unweighted, _ = in_ranks(2, lambda group: train(group, weighted=False))
    assert any((unweighted[name] - first[name]).abs().max() > 1e-3 for name in first)


PENDULUM = {"env__name": "Pendulum-v1"}
REPLAYED = {
    "DQN": q_learning(
        "DQN",
        **SGD,
        agent__net__update_type="polyak",
        agent__net__polyak_coef=0.2,
        agent__net__update_frequency=1,
        agent__algorithm__training_iter=2,
    ),
    "DoubleDQN": q_learning("DoubleDQN", **SGD, agent__net__clip_grad_val=0.1),
    "SoftActorCritic": soft("SoftActorCritic", **SGD, agent__algorithm__policy_delay=2),
    "squashed": soft("SoftActorCritic", **SGD, **PENDULUM),
}


def with_noise(learner, rank, size):
    """Makes a stochastic policy take its part of the noise of all ranks."""
    generator = torch.Generator().manual_seed(5)

    def draw(shape, _):
        count, dim = shape
        whole = torch.randn(size * count, dim, generator=generator)
        if rank is None:
            return whole
        return whole.view(size, count, dim)[rank]

    learner.policy = learner.policy._replace(draw=draw)
    learner.next_policy = learner.policy


@pytest.mark.parametrize("name", REPLAYED)
def test_replayed_parts_make_the_steps_of_the_whole(name):
    data = REPLAYED[name]
    obs_dim, action_dim = (3, 1) if name == "squashed" else (4, None)
    events = [
        [
            transitions(10 * event + i, obs_dim=obs_dim, action_dim=action_dim)
            for i in range(2)
        ]
        for event in range(UPDATES)
    ]

    def train(group):
        member = Rank(data, group)
        rank, size = (None, 1) if group is None else (group.rank, group.size)
        if action_dim is not None:
            with_noise(member.learner, rank, size)
        start = member.vectors
        reports = [
            member.learn(
                Given(
                    batches
                    if rank is None
                    else [share_of(b, rank, size) for b in batches]
                )
            )
            for batches in events
        ]
        return start, member.vectors, reports

    start, alone, reports = train(None)
    (_, first, rank_reports), (_, second, _) = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone, start)
    for ours, theirs in zip(rank_reports, reports, strict=True):
        for key in ("loss", "grad_norm", "q_value"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-3, abs=1e-5)
