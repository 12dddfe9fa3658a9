"""Batches for ranks, and comparisons of their results."""

from dataclasses import fields, replace

import numpy as np
import torch

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.batch import Rollout, Transitions, TransitionSource
from slm_lab.agent.build import build_agent
from slm_lab.env.make import make_env
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.experience import observed
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Vote
from tests.support import parse

SGD = {"agent__net__optim_spec": {"name": "SGD", "lr": 0.05, "momentum": 0.9}}
"""With plain SGD a difference in a gradient is one in a step, of the same relative
size."""
UPDATES = 4


class Rank:
    """An agent that learns from given batches: alone, or as one of several ranks."""

    def __init__(self, data, group=None, seed=0):
        self.spec = parse(data)
        self.env = make_env(self.spec.env, 10 + (0 if group is None else group.rank))
        self.agent = build_agent(
            spec=self.spec.agent,
            layout=self.env.layout,
            action_space=self.env.action_space,
            num_envs=self.env.num_envs,
            seeds=AgentSeeds(init=seed, action=1, sampling=2),
        )
        self.learner = self.agent.learner
        self.strategy = None
        if group is not None:
            self.strategy = AllReduceStrategy(
                StatusBoard.allocate(CONTEXT, group.size), group
            )
            self.strategy.clock(1000)
            self.strategy.join(self.agent, self.env)
            self.learner.weights_replaced()

    def learn(self, batch, num_samples=1):
        """One training event; the report of all."""
        if self.strategy is None:
            return self.learner.learn(batch, 0)
        assert self.strategy.ballot.agree(Vote.LEARN, num_samples) is Vote.LEARN
        self.strategy.refresh()
        return self.strategy.learned(self.learner.learn(batch, 0), 0.0)

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
    """Asserts that they are equal but for rounding, and have moved from the `start`."""
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
    of_steps = (
        "obs",
        "action",
        "log_prob",
        "value",
        "reward",
        "terminated",
        "truncated",
    )
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
    bootstrap_t = [
        part.bootstrap_t + start for part, start in zip(parts, starts, strict=True)
    ]
    return Rollout(**{**joined, "bootstrap_t": torch.cat(bootstrap_t)})


def episodes(seed, steps):
    """One column that ends with an episode."""
    whole = rollout(seed, steps, num_envs=1)
    whole.terminated[-1] = True
    whole.truncated[-1] = False
    return whole


class Given(TransitionSource):
    """Hands out these batches, one after the other."""

    num_stored = 10
    num_trained_on = 8

    def __init__(self, batches):
        self.num_batches = len(batches)
        self._batches = iter(batches)

    def sample(self, frame):
        return next(self._batches)

    def update_priorities(self, index, error):
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
        discount=torch.from_numpy(
            np.where(rng.random(size) < 0.2, 0, 0.9).astype(np.float32)
        ),
        next_obs=normal(size, obs_dim),
        weight=torch.from_numpy(rng.uniform(0.2, 1, size).astype(np.float32)),
        index=torch.arange(size),
    )


def share_of(batch, rank, size):
    """The samples of one of `size` ranks."""
    each = len(batch.reward) // size
    own = slice(rank * each, (rank + 1) * each)
    return Transitions(
        *(getattr(batch, field.name)[own] for field in fields(Transitions))
    )


PAST = {
    "name": "OnPolicyBatchReplay",
    "sil_replay_name": "Replay",
    "batch_size": 4,
    "max_size": 100,
}


def on_episodes(make, **changes):
    return make(**{**SGD, "agent__memory": {"name": "OnPolicyReplay"}, **changes})


def play(member, obs):
    """One vector step; what to act on next."""
    act = member.agent.act(obs, 0)
    step = member.env.step(act.action)
    member.agent.observe(observed(obs, act, step))
    return step.obs
