"""What ranks agree on: each step, what is not finite, statistics, and where they begin
and end."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.agent.batch import ImitationBatch
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import build_rule
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.parallel.all_reduce.sync import (
    AllReduceSync,
    average_statistics,
    broadcast,
)
from tests.support import actor_critic, ppo, q_learning, soft
from tests.unit.parallel.all_reduce.learning_ranks import (
    PAST,
    UPDATES,
    Given,
    Rank,
    check_close,
    check_equal,
    episodes,
    on_episodes,
    one_after_the_other,
    play,
    rollout,
    share_of,
    transitions,
)
from tests.unit.parallel.all_reduce.ranks import in_ranks, outcomes_of


def network():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.5)
    return net


def step_of(sync, scale, clip, share=None):
    """The gradient that an SGD step of rate 1 takes, (P,), where the own one is `scale`
    ones."""
    flat = FlatParameters(network())
    optimizer = Optimizer(flat, build_rule("SGD", {}, flat), LearningRate(1.0), clip)
    if sync is not None:
        optimizer.join(sync)
        sync.share = sync.share if share is None else share
        optimizer.begin_event(0)
    before = flat.vector.clone()
    _, norm = optimizer.step(scale * sum(view.sum() for view in flat.views))
    return before - flat.vector, norm


def test_gradients_are_averaged_first_and_clipped_after():
    """Only one rank's norm exceeds the bound: clipping first would shorten the mean."""
    scales = (3.0, 0.1)
    clip = 1.0
    root = 8**0.5
    taken = in_ranks(
        2, lambda group: step_of(AllReduceSync(group), scales[group.rank], clip)
    )
    averaged_first = torch.full((8,), 1.0 / root)
    clipped_first = torch.full((8,), (1.0 / root + 0.1) / 2)
    for grad, norm in taken:
        assert norm == pytest.approx(1.55 * root)
        assert_close(grad, averaged_first)
    assert (averaged_first - clipped_first).abs().min() > 0.1


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_rank_steps_like_a_single_process_bit_for_bit(clip):
    alone, norm = step_of(None, 1 / 3, clip)
    ((grad, same_norm),) = in_ranks(
        1, lambda group: step_of(AllReduceSync(group), 1 / 3, clip)
    )
    assert torch.equal(grad, alone)
    assert norm == same_norm


def spoiled(batch, rank, bad):
    """A reward that is no number, on one rank."""
    if rank == bad:
        batch.reward.view(-1)[1] = torch.nan
    return batch


NON_FINITE = {
    "ppo": (ppo(agent__algorithm__minibatch_size=24), rollout),
    "actor_critic": (actor_critic(), rollout),
    "one_network": (actor_critic(agent__net__shared=True), rollout),
    "DQN": (q_learning("DQN"), transitions),
    "SoftActorCritic": (soft("SoftActorCritic"), transitions),
}


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("name", NON_FINITE)
def test_a_loss_that_is_not_finite_on_one_rank_stops_all_before_a_weight_changes(
    name, bad
):
    data, make = NON_FINITE[name]

    def train(group):
        member = Rank(data, group)
        before = member.vectors
        batch = spoiled(make(group.rank), group.rank, bad)
        with pytest.raises(NonFiniteLossError):
            member.learn(Given([batch]) if make is transitions else batch)
        check_equal(member.vectors, before)
        return group.all_gather_bytes(b"came as often as the other")

    assert in_ranks(2, train) == [[b"came as often as the other"] * 2] * 2


NORMALISED = {
    "DQN": q_learning("DQN", agent__net__batch_norm=True),
    "polyak": q_learning(
        "DQN",
        agent__net__batch_norm=True,
        agent__net__update_type="polyak",
        agent__net__polyak_coef=0.5,
        agent__net__update_frequency=1,
    ),
    "renorm": q_learning("DQN", agent__net__batch_norm="renorm"),
    "CrossQ": soft("CrossQ"),
}


def train_normalised(name, size=3, updates=UPDATES):
    def train(group):
        member = Rank(NORMALISED[name], group)
        before = {n: f.statistics.clone() for n, f in member.learner.flats.items()}
        for turn in range(updates):
            source = Given(
                [transitions(100 * turn + 10 * i + group.rank) for i in range(2)]
            )
            source.num_stored = 64 * (turn + 1)  # so that a target that is replaced is
            member.learn(source)
        return before, member

    return in_ranks(size, train)


@pytest.mark.parametrize("name", ["DQN", "polyak"])
def test_target_networks_are_equal_on_all_ranks_with_their_statistics(name):
    results = train_normalised(name)
    targets = [
        member.learner.network.target_network.state_dict()["target"]
        for _, member in results
    ]
    for target in targets[1:]:
        assert torch.equal(target["vector"], targets[0]["vector"])
        assert torch.equal(target["statistics"], targets[0]["statistics"])


def test_averages_are_those_of_all_ranks_and_moments_stay_what_they_are():
    """Running moments are computed from the samples of all ranks, not as a mean of
    means."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))
            for name in ("running", "count", "mean", "m2"):
                self.register_buffer(name, torch.zeros(()))

    def act(group):
        flat = FlatParameters(Net())
        own = [1.0 + 2 * group.rank, 7.0 + group.rank, 8.0, 9.0]
        flat.statistics.copy_(torch.tensor(own))
        average_statistics(flat, group)
        return flat.statistics.tolist()

    assert in_ranks(2, act) == [[2.0, 7.0, 8.0, 9.0], [2.0, 8.0, 8.0, 9.0]]
    assert in_ranks(1, act) == [[1.0, 7.0, 8.0, 9.0]]


def test_all_begin_with_what_the_first_has_whatever_its_type_and_shape():
    def act(group):
        tensors = [
            torch.full((2, 3), 1 / 3 + group.rank).t(),
            torch.tensor(group.rank + 2**40),
            torch.empty(0),
            torch.tensor([True, group.rank == 0]),
        ]
        broadcast(tensors, group)
        return tensors

    for tensors in in_ranks(3, act):
        expected = [
            torch.full((3, 2), 1 / 3),
            torch.tensor(2**40),
            torch.empty(0),
            torch.tensor([True, True]),
        ]
        assert_close(tensors, expected, rtol=0, atol=0)


NORMALISING = actor_critic(env__normalize_obs=True, env__normalize_reward=True)


def test_statistics_of_environments_are_those_of_what_all_have_seen():
    """Equal to the last bit after each training event, and counted once over several
    events."""

    def act(group):
        member = Rank(NORMALISING, group)
        obs = member.env.reset()
        for turn in range(3):
            for _ in range(3 + 4 * group.rank):  # of unequal lengths
                obs = play(member, obs)
                if member.agent.is_due:
                    member.agent.memory.take()
            member.learn(rollout(turn))
        return member.env.statistics.copy(), member.env.moments

    (first, moments), (second, _) = in_ranks(2, act)
    np.testing.assert_array_equal(first, second)
    steps = 3 * (3 + 7)
    # The first observations count as well; rewards come with steps only.
    assert [first[place.start] for place in moments] == [4 * steps + 4 * 2, 4 * steps]


def test_a_run_that_ends_between_two_training_events_raises_no_error():
    """By then the environments of each rank have different statistics, which is
    correct."""

    def act(group):
        member = Rank(NORMALISING, group)
        obs = member.env.reset()
        member.learn(rollout(group.rank))
        for _ in range(3):
            obs = play(member, obs)
        own = member.env.statistics.copy()
        return own, member.strategy.checkpoint.final_state(
            lambda: {"whole": True}, True
        )

    (first, state), (second, _) = in_ranks(2, act)
    assert state == {"whole": True}
    assert not np.array_equal(first, second)


def test_ranks_that_have_come_apart_are_an_error_at_the_end():
    def act(group):
        member = Rank(actor_critic(), group)
        member.learn(rollout(group.rank))
        if group.rank == 1:
            member.learner.flats["critic"].vector[0] += 1e-6
        member.strategy.checkpoint.final_state(dict, True)

    for outcome in outcomes_of(3, act):
        assert "the networks of the ranks differ: rank 0" in str(outcome)


def imitating(make=actor_critic, **changes):
    keys = {
        "agent__algorithm__name": "SIL" if make is actor_critic else "PPOSIL",
        "agent__memory": PAST,
    }
    return make(**{**keys, **changes})


@pytest.mark.parametrize("make", [actor_critic, ppo])
def test_no_rank_imitates_before_all_have_past_returns(make):
    """One rank has finished episodes at once, the other none in the first two
    events."""
    data = imitating(
        make, **({"agent__algorithm__minibatch_size": 8} if make is ppo else {})
    )

    def train(group):
        member = Rank(data, group)
        past = member.agent.memory._past
        imitated = []
        stored = []
        for turn in range(4):
            batch = rollout(10 * turn + group.rank, ends=0.3)
            if group.rank == 1 and turn < 2:
                batch.terminated[:] = batch.truncated[:] = False
            imitated.append("sil_share" in member.learn(ImitationBatch(batch, past)))
            stored.append(past.num_stored > 0)
        return imitated, stored, member.learner.opt_step, member.vectors

    (imitated, stored, steps, vectors), (others, found, others_steps, same) = in_ranks(
        2, train
    )
    assert (stored, found) == ([True] * 4, [False, False, True, True])
    assert imitated == others == found
    assert steps == others_steps
    check_equal(vectors, same)


def test_imitation_on_parts_takes_the_steps_of_the_whole():
    """Its batches are of one size on all ranks, however unequal the rollouts before
    them are."""
    data = on_episodes(
        actor_critic,
        agent__algorithm__name="SIL",
        agent__memory={**PAST, "name": "OnPolicyReplay"},
    )
    parts = [
        [episodes(10 * turn + r, (3, 9)[r]) for r in range(2)]
        for turn in range(UPDATES)
    ]
    drawn = [transitions(turn) for turn in range(UPDATES)]

    class Past:
        num_stored = 1

        def __init__(self, batch):
            self._batch = batch

        def add(self, rollout):
            pass

        def sample(self, frame):
            return self._batch

        def update_priorities(self, index, error):
            pass

    alone = Rank(data)
    start = alone.vectors
    for each, batch in zip(parts, drawn, strict=True):
        alone.learn(ImitationBatch(one_after_the_other(each), Past(batch)))

    def train(group):
        member = Rank(data, group)
        for each, batch in zip(parts, drawn, strict=True):
            own = each[group.rank]
            past = Past(share_of(batch, group.rank, group.size))
            member.learn(ImitationBatch(own, past), len(own.reward))
        return member.vectors

    first, second = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)


@pytest.mark.parametrize("name", ["SoftActorCritic", "CrossQ"])
def test_ranks_of_different_seeds_are_reset_to_the_same_weights(name):
    data = soft(name, agent__algorithm__reset_frequency=100)

    def act(group):
        member = Rank(data, group, seed=group.rank)
        learner = member.learner
        networks = member.strategy.networks()
        member.learn(Given([transitions(group.rank)]))
        before = [tensor.clone() for tensor in networks]
        assert learner.resets.reset(learner.train_state, 101)
        learner.weights_replaced()
        optimizers = learner.train_state.optimizers.values()
        moments = [
            moment.clone()
            for optimizer in optimizers
            for moment in optimizer.shareable_state().values()
        ]
        anew = [tensor.clone() for tensor in networks]
        member.learn(Given([transitions(10 + group.rank)]))
        member.strategy.checkpoint.final_state(dict, True)
        return before, anew, moments

    (before, anew, moments), (_, others, _) = in_ranks(2, act)
    assert all(map(torch.equal, anew, others))
    pairs = zip(before, anew, strict=True)
    assert not any(torch.equal(*pair) for pair in pairs if pair[0].numel() > 0)
    assert not any(moment.any() for moment in moments)
