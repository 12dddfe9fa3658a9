"""Ranks that each learn from a part take the steps that one process takes on the whole."""

from collections import defaultdict
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.algorithm import ppo as ppo_module
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.soft_policy import squashed
from slm_lab.agent.batch import ImitationBatch, Rollout, Transitions, TransitionSource
from slm_lab.agent.build import build_agent
from slm_lab.agent.optim.all_reduce import AllReduceSync, average_statistics, broadcast
from slm_lab.agent.optim.build import build_rule
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.lr_schedule import ConstantRate
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.env.make import make_env
from slm_lab.experiment.all_reduce import AllReduce
from slm_lab.experiment.crew import Wish
from slm_lab.experiment.launch.processes import SPAWN
from slm_lab.experiment.progress import Board
from tests.support import actor_critic, parse, ppo, q_learning, reinforce, soft
from tests.unit.agent.ranks import in_ranks, outcomes_of

SGD = {"agent__net__optim_spec": {"name": "SGD", "lr": 0.05, "momentum": 0.9}}
"""So that a difference in a gradient is one in a step, of the same relative size."""
UPDATES = 4


class Rank:
    """An agent that learns what it is handed: alone, or as one of a crew."""

    def __init__(self, data, peers=None, seed=0):
        self.spec = parse(data)
        self.env = make_env(self.spec.env, 10 + (0 if peers is None else peers.rank))
        self.agent = build_agent(
            self.spec.agent,
            self.env.observation_space,
            self.env.action_space,
            self.env.num_envs,
            AgentSeeds(init=seed, action=1, sampling=2),
        )
        self.learner = self.agent.learner
        self.crew = None
        if peers is not None:
            self.crew = AllReduce(Board.allocate(SPAWN, peers.size), peers)
            self.crew.clock(1000)
            self.crew.join(self.agent, self.env)
            self.learner.weights_replaced()

    def learn(self, batch, num_samples=1):
        """One training event; the report of all."""
        if self.crew is None:
            return self.learner.learn(batch, 0)
        assert self.crew.meet(Wish.LEARN, num_samples) is Wish.LEARN
        return self.crew.learned(self.learner.learn(batch, 0), 0.0)

    @property
    def vectors(self):
        """Parameters and running statistics of each network."""
        flats = self.learner.flats.items()
        return {name: torch.cat([flat.vector, flat.statistics]) for name, flat in flats}


def check_equal(one, other):
    assert one.keys() == other.keys()
    for name, vector in one.items():
        assert torch.equal(vector, other[name]), name


def check_close(one, other, start=None):
    """Equal but for rounding; and not because nothing has moved from the `start`."""
    assert one.keys() == other.keys()
    for name, vector in one.items():
        torch.testing.assert_close(vector, other[name], rtol=1e-4, atol=2e-6)
        if start is not None:
            assert (vector - start[name]).abs().max() > 1e-3, name


def rollout(seed, steps=6, num_envs=4, obs_dim=4, ends=0.15):
    """Random steps whose endings are bootstrapped from, as memories hand them out."""
    rng = np.random.default_rng(seed)
    shape = (steps, num_envs)
    terminated = rng.random(shape) < ends
    truncated = ~terminated & (rng.random(shape) < ends)
    cut = truncated.copy()
    cut[-1] = True
    t, n = np.nonzero(cut)

    def normal(*size):
        return torch.from_numpy(rng.normal(size=size).astype(np.float32))

    return Rollout(
        obs=normal(*shape, obs_dim),
        action=torch.from_numpy(rng.integers(0, 2, shape)),
        log_prob=-0.7 + 0.2 * normal(*shape),
        value=normal(*shape),
        reward=1 + 3 * normal(*shape),
        terminated=torch.from_numpy(terminated),
        truncated=torch.from_numpy(truncated),
        bootstrap_obs=normal(len(t), obs_dim),
        bootstrap_t=torch.from_numpy(t),
        bootstrap_n=torch.from_numpy(n),
        version=torch.zeros(steps, dtype=torch.int64),
    )


def columns(whole, first, last):
    """The rollout of the environments from `first` to before `last`."""
    own = (whole.bootstrap_n >= first) & (whole.bootstrap_n < last)
    of_steps = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated")
    return replace(
        whole,
        **{name: getattr(whole, name)[:, first:last].clone() for name in of_steps},
        bootstrap_obs=whole.bootstrap_obs[own],
        bootstrap_t=whole.bootstrap_t[own],
        bootstrap_n=whole.bootstrap_n[own] - first,
    )


def one_after_the_other(parts):
    """Rollouts of one column each, put together along time."""
    starts = np.cumsum([0, *(len(part.reward) for part in parts)])[:-1]
    joined = {
        name.name: torch.cat([getattr(part, name.name) for part in parts])
        for name in fields(Rollout)
    }
    bootstrap_t = [part.bootstrap_t + start for part, start in zip(parts, starts, strict=True)]
    return Rollout(**{**joined, "bootstrap_t": torch.cat(bootstrap_t)})


def episodes(seed, steps):
    """One column that ends with an episode."""
    whole = rollout(seed, steps, num_envs=1)
    whole.terminated[-1], whole.truncated[-1] = True, False
    return whole


class Given(TransitionSource):
    """Hands out these batches, one after the other."""

    num_stored, num_trained_on = 10, 8

    def __init__(self, batches):
        self.num_batches = len(batches)
        self._batches = iter(batches)

    def sample(self, frame):
        return next(self._batches)

    def report_errors(self, index, error):
        pass


def transitions(seed, size=8, obs_dim=4, action_dim=None):
    """Random steps; of a continuous action where it has a size."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    action = torch.from_numpy(rng.integers(0, 2, size))
    return Transitions(
        obs=normal(size, obs_dim),
        action=action if action_dim is None else normal(size, action_dim).tanh(),
        log_prob=-normal(size).abs(),
        reward=normal(size),
        discount=torch.from_numpy(np.where(rng.random(size) < 0.2, 0, 0.9).astype(np.float32)),
        next_obs=normal(size, obs_dim),
        weight=torch.from_numpy(rng.uniform(0.2, 1, size).astype(np.float32)),
        index=torch.arange(size),
    )


def share_of(batch, rank, size):
    """The samples of one of `size` ranks."""
    each = len(batch.reward) // size
    own = slice(rank * each, (rank + 1) * each)
    return Transitions(*(getattr(batch, field.name)[own] for field in fields(Transitions)))


class Orders:
    """Stands in for the shuffle of PPO: everyone goes through the samples of all in one order.

    Of the minibatches of the whole each of W ranks has the W-th part that is its own.
    """

    def __init__(self, seed, steps, num_envs, size, minibatch):
        rng = np.random.default_rng(seed)
        own = steps * num_envs // size
        self._num_envs, self._size, self._minibatch = num_envs, size, minibatch
        self._lists = [[rng.permutation(own) for _ in range(size)] for _ in range(100)]
        self._asked = defaultdict(int)
        self.rank_of = {}
        """By generator; None is one process that has everything."""

    def __call__(self, rows, recall, generator):
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
        return torch.from_numpy(np.concatenate([np.concatenate(parts) for parts in minibatches]))


def train_ppo(monkeypatch, size, changes, updates=UPDATES, steps=6, num_envs=None):
    """One process, and ranks, on the same rollouts and orders: vectors at the end, and reports."""
    num_envs = 2 * size if num_envs is None else num_envs
    minibatch = 5  # so that the last is smaller
    keys = {**SGD, "agent__net__clip_grad_val": None, **changes,
            "agent__algorithm__training_epoch": 3}  # fmt: skip
    data = {
        many: ppo(
            **keys,
            agent__algorithm__time_horizon=steps,
            agent__algorithm__minibatch_size=minibatch * many,
            env__num_envs=num_envs if many > 1 else num_envs // size,
        )
        for many in (1, size)
    }
    wholes = [rollout(seed, steps, num_envs) for seed in range(updates)]
    orders = Orders(0, steps, num_envs, size, minibatch)
    monkeypatch.setattr(ppo_module, "shuffled", orders)

    def train(peers):
        member = Rank(data[1], peers)
        orders.rank_of[member.learner._generator] = peers.rank
        each = num_envs // size
        first = peers.rank * each
        reports = [member.learn(columns(whole, first, first + each)) for whole in wholes]
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
    "symlog": {"agent__algorithm__symlog": True, "agent__algorithm__normalize_v_targets": True},
    "clipped_values": {"agent__algorithm__clip_vloss": True},
    "one_network": {"agent__net__shared": True},
    "clipped_gradients": {"agent__net__clip_grad_val": 0.1},
}


@pytest.mark.parametrize("changes", PPO_KEYS.values(), ids=PPO_KEYS.keys())
def test_ppo_on_parts_takes_the_steps_of_ppo_on_the_whole(monkeypatch, changes):
    alone, start, reports, ranks = train_ppo(monkeypatch, 2, changes)
    (first, told), (second, also_told) = ranks
    check_equal(first.vectors, second.vectors)
    check_close(first.vectors, alone.vectors, start)
    assert told == also_told
    assert first.learner.opt_step == alone.learner.opt_step == UPDATES * 3 * 3
    for ours, theirs in zip(told, reports, strict=True):
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)


def test_what_ranks_report_of_ppo_is_the_report_of_the_whole(monkeypatch):
    """Means of means over equal parts: all but the explained variance, which is no mean."""
    _, _, reports, ranks = train_ppo(monkeypatch, 2, {}, updates=1)
    for _, told in ranks:
        for name in reports[0].keys() - {"explained_variance"}:
            assert told[0][name] == pytest.approx(reports[0][name], rel=1e-3, abs=1e-5), name


def test_four_ranks_are_as_one_too(monkeypatch):
    alone, start, _, ranks = train_ppo(monkeypatch, 4, {}, updates=2)
    for member, _ in ranks:
        check_equal(member.vectors, ranks[0][0].vectors)
    check_close(ranks[0][0].vectors, alone.vectors, start)


def test_the_kl_of_all_ends_a_training_event_of_all(monkeypatch):
    """Where it ends a rank's own would have gone on, or the other way round."""
    bound = {"agent__algorithm__target_kl": 0.15, "agent__algorithm__normalize_advantages": None}
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

    def train(peers):
        member = Rank(data, peers)
        first = 2 * peers.rank
        told = [member.learn(columns(whole, first, first + 2)) for whole in wholes]
        return member.vectors, told

    (first, told), (second, _) = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)
    for ours, theirs in zip(told, reports, strict=True):
        for name in ("loss", "grad_norm", "entropy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5)


LENGTHS = [(3, 9), (12, 2), (1, 1), (7, 4)]
"""Steps of two ranks, training event by training event."""


PAST = {"name": "OnPolicyBatchReplay", "sil_replay_name": "Replay", "batch_size": 4,
        "max_size": 100}  # fmt: skip


def on_episodes(make, **changes):
    return make(**{**SGD, "agent__memory": {"name": "OnPolicyReplay"}, **changes})


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

    def train(peers, weighted=True):
        member = Rank(data, peers)
        for each in parts:
            own = each[peers.rank]
            member.learn(own, len(own.reward) if weighted else 1)
        return member.vectors

    first, second = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)
    unweighted, _ = in_ranks(2, lambda peers: train(peers, weighted=False))
    assert any((unweighted[name] - first[name]).abs().max() > 1e-3 for name in first)


@pytest.mark.parametrize(
    "data",
    [
        on_episodes(reinforce),
        on_episodes(
            reinforce, agent__memory={"name": "OnPolicyCrossEntropy", "cross_entropy": 0.5}
        ),
        on_episodes(
            actor_critic,
            agent__algorithm__name="SIL",
            agent__memory={**PAST, "name": "OnPolicyReplay"},
        ),
    ],
    ids=["whole_episodes", "the_best", "with_the_past"],
)
def test_agents_say_how_many_samples_they_are_about_to_learn_from(data):
    member = Rank(data)
    obs = member.env.reset()
    while not member.agent.is_due:
        obs = play(member, obs)
    number, batch = member.agent.num_samples, member.agent.memory.take()
    taken = batch.rollout if isinstance(batch, ImitationBatch) else batch
    assert number == taken.reward.numel() > 2


def play(member, obs):
    """One vector step; what to act on next."""
    act = member.agent.act(obs, 0)
    step = member.env.step(act.action)
    member.agent.observe(obs, act, step.reward, step.terminated, step.truncated, step.next_obs)
    return step.obs


PENDULUM = {"env__name": "Pendulum-v1"}
REPLAYED = {
    "DQN": q_learning("DQN", **SGD, agent__net__update_type="polyak", agent__net__polyak_coef=0.2,
                      agent__net__update_frequency=1, agent__algorithm__training_iter=2),
    "DoubleDQN": q_learning("DoubleDQN", **SGD, agent__net__clip_grad_val=0.1),
    "SoftActorCritic": soft("SoftActorCritic", **SGD, agent__algorithm__policy_delay=2),
    "squashed": soft("SoftActorCritic", **SGD, **PENDULUM),
}  # fmt: skip


def noise_of(params, rank, size, whole):
    """(B, A) of the batch of all, or a rank's part of it."""
    if rank is None:
        return whole
    return whole[rank * len(params) : (rank + 1) * len(params)]


def with_noise(learner, rank, size, monkeypatched):
    """Has a policy that draws take its noise from a stream that all ranks know."""
    generator = torch.Generator().manual_seed(5)

    def policy(params, q, _):
        count = len(params) * (1 if rank is None else size)
        whole = torch.randn(count, params.shape[-1] // 2, generator=generator)
        monkeypatched[id(generator)] = noise_of(params, rank, size, whole)
        return squashed(params, q, generator)

    learner.policy = policy


@pytest.mark.parametrize("name", REPLAYED)
def test_replayed_parts_make_the_steps_of_the_whole(name, monkeypatch):
    data = REPLAYED[name]
    drawn = {}
    if name == "squashed":
        obs_dim, action_dim = 3, 1
        monkeypatch.setattr(
            "slm_lab.agent.distribution.continuous.DiagonalNormal.sample",
            lambda self, generator: self.mean + self.log_std.exp() * drawn[id(generator)],
        )
    else:
        obs_dim, action_dim = 4, None
    events = [
        [transitions(10 * event + i, obs_dim=obs_dim, action_dim=action_dim) for i in range(2)]
        for event in range(UPDATES)
    ]

    def train(peers):
        member = Rank(data, peers)
        rank, size = (None, 1) if peers is None else (peers.rank, peers.size)
        if action_dim is not None:
            with_noise(member.learner, rank, size, drawn)
        start = member.vectors
        reports = [
            member.learn(
                Given(batches if rank is None else [share_of(b, rank, size) for b in batches])
            )
            for batches in events
        ]
        return start, member.vectors, reports

    start, alone, reports = train(None)
    (_, first, told), (_, second, _) = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone, start)
    for ours, theirs in zip(told, reports, strict=True):
        for key in ("loss", "grad_norm", "q_value"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("optimizer", ["GlobalAdam", "GlobalRMSprop", "AdamW", "Adafactor"])
def test_ranks_stay_equal_to_the_last_bit_with_any_optimizer(optimizer):
    data = actor_critic(agent__net__optim_spec={"name": optimizer, "lr": 0.01})

    def train(peers):
        member = Rank(data, peers, seed=peers.rank)  # they begin with the weights of the first
        start = member.vectors
        for turn in range(UPDATES):
            member.learn(rollout(10 * turn + peers.rank))
        tensors = [t.clone() for o in member.learner.units.optimizers.values()
                   for t in o.state_tensors()]  # fmt: skip
        return start, member.vectors, tensors

    results = in_ranks(3, train)
    check_equal(results[0][0], Rank(data, seed=0).vectors)
    for start, vectors, tensors in results[1:]:
        check_equal(start, results[0][0])
        check_equal(vectors, results[0][1])
        assert len(tensors) == len(results[0][2])
        assert all(torch.equal(*pair) for pair in zip(tensors, results[0][2], strict=True))


def network():
    net = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.5)
    return net


def step_of(sync, scale, clip, share=None):
    """The gradient that an SGD step of rate 1 takes, (P,), where the own one is `scale` ones."""
    flat = FlatParameters(network())
    optimizer = Optimizer(flat, build_rule("SGD", {}, flat), ConstantRate(1.0), clip)
    if sync is not None:
        optimizer.join(sync)
        sync.share = sync.share if share is None else share
        optimizer.begin_event(0)
    before = flat.vector.clone()
    _, norm = optimizer.step(scale * sum(view.sum() for view in flat.views))
    return before - flat.vector, norm


def test_gradients_are_averaged_first_and_clipped_after():
    """One rank's is beyond the bound and one is not: clipped first, their mean were shorter."""
    scales, clip, root = (3.0, 0.1), 1.0, 8**0.5
    taken = in_ranks(2, lambda peers: step_of(AllReduceSync(peers), scales[peers.rank], clip))
    averaged_first = torch.full((8,), 1.0 / root)
    clipped_first = torch.full((8,), (1.0 / root + 0.1) / 2)
    for grad, norm in taken:
        assert norm == pytest.approx(1.55 * root)
        torch.testing.assert_close(grad, averaged_first)
    assert (averaged_first - clipped_first).abs().min() > 0.1


def test_gradients_count_by_their_share():
    taken = in_ranks(
        3,
        lambda peers: step_of(
            AllReduceSync(peers), (1.0, 2.0, 4.0)[peers.rank], None, (0.5, 0.375, 0.125)[peers.rank]
        ),
    )
    for grad, _ in taken:
        torch.testing.assert_close(grad, torch.full((8,), 1.75))
    (equal, _), *_ = in_ranks(4, lambda p: step_of(AllReduceSync(p), float(p.rank), None))
    torch.testing.assert_close(equal, torch.full((8,), 1.5))


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_rank_steps_as_if_it_were_alone_to_the_last_bit(clip):
    alone, norm = step_of(None, 1 / 3, clip)
    ((grad, same_norm),) = in_ranks(1, lambda peers: step_of(AllReduceSync(peers), 1 / 3, clip))
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
def test_a_loss_that_is_not_finite_on_one_rank_stops_all_before_a_weight_changes(name, bad):
    data, make = NON_FINITE[name]

    def train(peers):
        member = Rank(data, peers)
        before = member.vectors
        batch = spoiled(make(peers.rank), peers.rank, bad)
        with pytest.raises(NonFiniteLossError):
            member.learn(Given([batch]) if make is transitions else batch)
        check_equal(member.vectors, before)
        return peers.all_of(b"came as often as the other")

    assert in_ranks(2, train) == [[b"came as often as the other"] * 2] * 2


@pytest.mark.parametrize("part", ["policy", "value"])
def test_no_network_steps_where_the_loss_of_one_is_not_finite_on_one_rank(part):
    """Actor and critic apart: neither has taken its step when the other's is refused."""
    data = actor_critic()

    def train(peers):
        member = Rank(data, peers)
        network, before = member.learner.network, member.vectors
        factor = torch.nan if peers.rank == 1 else 1.0
        obs = torch.ones(5, 4)
        policy = network.policy(obs).sum() * (factor if part == "policy" else 1.0)
        value = network.raw_value(obs).sum() * (factor if part == "value" else 1.0)
        with pytest.raises(NonFiniteLossError, match="nan"):
            network.step(policy, value)
        check_equal(member.vectors, before)

    in_ranks(2, train)


def test_a_gradient_that_is_not_finite_is_heard_of_by_all_too():
    """From a loss that is."""

    def train(peers):
        flat = FlatParameters(network())
        optimizer = Optimizer(flat, build_rule("SGD", {}, flat), ConstantRate(1.0), None)
        optimizer.join(AllReduceSync(peers))
        before = flat.vector.clone()
        total = sum(view.sum() for view in flat.views)
        zero = (total - total.detach()).abs()
        with pytest.raises(NonFiniteLossError, match="norm"):
            optimizer.step(zero.sqrt() if peers.rank else total)  # d√x/dx is infinite at 0
        assert torch.equal(flat.vector, before)

    in_ranks(2, train)


def count_sums(peers):
    """The lengths of the vectors that are summed, one after the other."""
    counted, sum_ = [], peers.sum_

    def counting(vector):
        counted.append(len(vector))
        sum_(vector)

    peers.sum_ = counting
    return counted


def test_each_optimizer_is_reduced_in_its_own_step_and_in_no_other():
    """Once a step on the whole vector: critics, then every second time actor and temperature."""

    def train(peers):
        member = Rank(soft("SoftActorCritic", agent__algorithm__policy_delay=2), peers)
        counted = count_sums(peers)
        member.learn(Given([transitions(i + peers.rank) for i in range(4)]))
        sizes = {name: len(vector) for name, vector in member.vectors.items()}
        return sizes, counted

    for sizes, counted in in_ranks(2, train):
        critic, actor, alpha = sizes["critic"], sizes["actor"], sizes["alpha"]
        assert len({critic, actor, alpha}) == 3
        assert counted == [critic, critic, actor, alpha] * 2


def test_a_critic_apart_is_reduced_apart():
    def train(peers):
        member = Rank(actor_critic(), peers)
        counted = count_sums(peers)
        member.learn(rollout(peers.rank))
        return counted, [len(vector) for vector in member.vectors.values()]

    for counted, sizes in in_ranks(2, train):
        assert counted == sizes
        assert len(sizes) == 2


NORMALISED = {
    "DQN": q_learning("DQN", agent__net__batch_norm=True),
    "polyak": q_learning("DQN", agent__net__batch_norm=True, agent__net__update_type="polyak",
                         agent__net__polyak_coef=0.5, agent__net__update_frequency=1),
    "renorm": q_learning("DQN", agent__net__batch_norm="renorm"),
    "CrossQ": soft("CrossQ"),
}  # fmt: skip


def train_normalised(name, size=3, updates=UPDATES):
    def train(peers):
        member = Rank(NORMALISED[name], peers)
        before = {n: f.statistics.clone() for n, f in member.learner.flats.items()}
        for turn in range(updates):
            source = Given([transitions(100 * turn + 10 * i + peers.rank) for i in range(2)])
            source.num_stored = 64 * (turn + 1)  # so that a target that is replaced is
            member.learn(source)
        return before, member

    return in_ranks(size, train)


@pytest.mark.parametrize("name", NORMALISED)
def test_batch_statistics_are_equal_after_a_training_event(name):
    results = train_normalised(name)
    moved = 0
    for before, member in results:
        for unit, flat in member.learner.flats.items():
            first = results[0][1].learner.flats[unit].statistics
            assert torch.equal(flat.statistics, first)
            moved += flat.statistics.numel() > 0 and not torch.equal(flat.statistics, before[unit])
    assert moved == len(results)


@pytest.mark.parametrize("name", ["DQN", "polyak"])
def test_target_networks_are_equal_on_all_ranks_with_their_statistics(name):
    results = train_normalised(name)
    targets = [member.learner.network.follower.state_dict()["target"] for _, member in results]
    for target in targets[1:]:
        assert torch.equal(target["vector"], targets[0]["vector"])
        assert torch.equal(target["statistics"], targets[0]["statistics"])


def test_averages_are_those_of_all_ranks_and_moments_stay_what_they_are():
    """Running moments are made from the samples of all anyway, and no mean of means."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))
            for name in ("running", "count", "mean", "m2"):
                self.register_buffer(name, torch.zeros(()))

    def act(peers):
        flat = FlatParameters(Net())
        own = [1.0 + 2 * peers.rank, 7.0 + peers.rank, 8.0, 9.0]
        flat.statistics.copy_(torch.tensor(own))
        average_statistics(flat, peers)
        return flat.statistics.tolist()

    assert in_ranks(2, act) == [[2.0, 7.0, 8.0, 9.0], [2.0, 8.0, 8.0, 9.0]]
    assert in_ranks(1, act) == [[1.0, 7.0, 8.0, 9.0]]


def test_all_begin_with_what_the_first_has_whatever_its_type_and_shape():
    def act(peers):
        tensors = [
            torch.full((2, 3), 1 / 3 + peers.rank).t(),
            torch.tensor(peers.rank + 2**40),
            torch.empty(0),
            torch.tensor([True, peers.rank == 0]),
        ]
        broadcast(tensors, peers)
        return tensors

    for tensors in in_ranks(3, act):
        expected = [torch.full((3, 2), 1 / 3), torch.tensor(2**40), torch.empty(0),
                    torch.tensor([True, True])]  # fmt: skip
        for tensor, value in zip(tensors, expected, strict=True):
            assert torch.equal(tensor, value)


NORMALISING = actor_critic(env__normalize_obs=True, env__normalize_reward=True)


def test_statistics_of_environments_are_those_of_what_all_have_seen():
    """Equal to the last bit after each training event, and counted once over several events."""

    def act(peers):
        member = Rank(NORMALISING, peers)
        obs = member.env.reset()
        for turn in range(3):
            for _ in range(3 + 4 * peers.rank):  # of unequal lengths
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


def test_a_run_ends_between_two_training_events_without_an_alarm():
    """Then each rank's environments have seen something of their own, and that is as it must be."""

    def act(peers):
        member = Rank(NORMALISING, peers)
        obs = member.env.reset()
        member.learn(rollout(peers.rank))
        for _ in range(3):
            obs = play(member, obs)
        own = member.env.statistics.copy()
        return own, member.crew.end_together(lambda: {"whole": True})

    (first, state), (second, _) = in_ranks(2, act)
    assert state == {"whole": True}
    assert not np.array_equal(first, second)


def test_ranks_that_have_come_apart_are_an_error_at_the_end():
    def act(peers):
        member = Rank(actor_critic(), peers)
        member.learn(rollout(peers.rank))
        if peers.rank == 1:
            member.learner.flats["critic"].vector[0] += 1e-6
        member.crew.end_together(dict)

    for outcome in outcomes_of(3, act):
        assert "the networks of the ranks are not the same any more: rank 0" in str(outcome)


def imitating(make=actor_critic, **changes):
    keys = {"agent__algorithm__name": "SIL" if make is actor_critic else "PPOSIL",
            "agent__memory": PAST}  # fmt: skip
    return make(**{**keys, **changes})


@pytest.mark.parametrize("make", [actor_critic, ppo])
def test_nobody_imitates_before_all_have_something_to_imitate(make):
    """One rank has finished episodes at once, the other none in the first two events."""
    data = imitating(make, **({"agent__algorithm__minibatch_size": 8} if make is ppo else {}))

    def train(peers):
        member = Rank(data, peers)
        past = member.agent.memory._past
        imitated, stored = [], []
        for turn in range(4):
            batch = rollout(10 * turn + peers.rank, ends=0.3)
            if peers.rank == 1 and turn < 2:
                batch.terminated[:] = batch.truncated[:] = False
            imitated.append("sil_share" in member.learn(ImitationBatch(batch, past)))
            stored.append(past.num_stored > 0)
        return imitated, stored, member.learner.opt_step, member.vectors

    (imitated, stored, steps, vectors), (others, found, others_steps, same) = in_ranks(2, train)
    assert (stored, found) == ([True] * 4, [False, False, True, True])
    assert imitated == others == found
    assert steps == others_steps
    check_equal(vectors, same)


def test_imitation_of_parts_takes_the_steps_of_the_whole():
    """Its batches are of one size on all ranks, however unequal the rollouts before them are."""
    data = on_episodes(actor_critic, agent__algorithm__name="SIL",
                       agent__memory={**PAST, "name": "OnPolicyReplay"})  # fmt: skip
    parts = [[episodes(10 * turn + r, (3, 9)[r]) for r in range(2)] for turn in range(UPDATES)]
    drawn = [transitions(turn) for turn in range(UPDATES)]

    class Past:
        num_stored = 1

        def __init__(self, batch):
            self._batch = batch

        def add(self, rollout, value):
            pass

        def sample(self, frame):
            return self._batch

        def report_errors(self, index, error):
            pass

    alone = Rank(data)
    start = alone.vectors
    for each, batch in zip(parts, drawn, strict=True):
        alone.learn(ImitationBatch(one_after_the_other(each), Past(batch)))

    def train(peers):
        member = Rank(data, peers)
        for each, batch in zip(parts, drawn, strict=True):
            own = each[peers.rank]
            past = Past(share_of(batch, peers.rank, peers.size))
            member.learn(ImitationBatch(own, past), len(own.reward))
        return member.vectors

    first, second = in_ranks(2, train)
    check_equal(first, second)
    check_close(first, alone.vectors, start)
