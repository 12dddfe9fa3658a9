"""An agent and its environments without a Session, what its batches must hold, and how
two states are compared."""

import functools
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.batch import ImitationBatch, Rollout, Transitions, TransitionSource
from slm_lab.agent.build import build_agent
from slm_lab.agent.memory.memory import Memory
from slm_lab.core.types import Array, StateDict
from slm_lab.env.make import make_env
from slm_lab.env.vector_env import Step, VectorEnv
from slm_lab.session.experience import observed
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import from_plain, to_plain


class Play:
    """Steps of one agent in its environments; other agents may learn from the same
    steps."""

    def __init__(self, spec: Spec, seed: int = 0) -> None:
        self.spec = spec
        self.env: VectorEnv = make_env(spec.env, seed)
        self.agent = self.fresh_agent(seed)
        self.obs = self.env.reset()
        self.frame = 0
        self.action_shape = self.env.action_space.shape or ()
        self.memory_shape = self.agent.actor.memory_obs(self.obs).shape[1:]
        """The shape of one observation as the memory stores it."""

    def fresh_agent(self, seed: int) -> LearningAgent:
        """Another agent of the same spec for the same environments."""
        seeds = AgentSeeds(init=seed, action=seed + 100, sampling=seed + 200)
        env = self.env
        spaces = env.layout, env.action_space
        normalization = env.normalization
        return build_agent(
            self.spec.agent, *spaces, env.num_envs, seeds, normalization=normalization
        )

    def step(self, *onlookers: LearningAgent) -> tuple[Array, Step]:
        """One vector step by the agent's action; every other agent observes it as its
        own."""
        obs = self.obs
        act = self.agent.act(obs, self.frame)
        step = self.env.step(act.action)
        self.frame += self.env.num_envs
        for agent in (self.agent, *onlookers):
            agent.observe(observed(obs, act, step))
        self.obs = step.obs
        return obs, step

    def reports(self, num_steps: int) -> Iterator[dict[str, float]]:
        """The reports of the training events of so many steps."""
        for _ in range(num_steps):
            self.step()
            report = self.agent.learn(self.frame)
            if report is not None:
                yield report


def saved(state: StateDict) -> Any:
    """The state as read from a checkpoint."""
    file = io.BytesIO()
    torch.save(to_plain(state), file)
    file.seek(0)
    return from_plain(torch.load(file, weights_only=True))


def whole(part: LearningAgent | Memory[Any]) -> StateDict:
    """All its state: what a checkpoint holds, and the steps in its log."""
    log = part.log
    steps = None if log is None else log.content(log.first, log.count)
    return {"state": part.state_dict(), "steps": steps}


def load_whole(part: LearningAgent | Memory[Any], state: StateDict) -> None:
    """Restores the result of `whole`."""
    part.load_state_dict(state["state"])
    if part.log is not None:
        part.log.load_content(state["steps"])


def same(state: Any, other: Any) -> bool:
    """Whether two states are equal bit for bit, NaN being equal to itself."""
    return _same(to_plain(state), to_plain(other))


def _same(state: Any, other: Any) -> bool:
    if isinstance(state, dict):
        return state.keys() == other.keys() and all(
            _same(state[key], other[key]) for key in state
        )
    if isinstance(state, list):
        return len(state) == len(other) and all(map(_same, state, other))
    if isinstance(state, Tensor):
        alike = state.dtype == other.dtype and state.shape == other.shape
        return alike and torch.equal(state.nan_to_num(), other.nan_to_num())
    return bool(state == other or (_is_nan(state) and _is_nan(other)))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def check_shapes(shapes: Mapping[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    """Checks that each field of a batch has the shape that it promises."""
    for name, (tensor, expected) in shapes.items():
        assert tensor.shape == expected, (
            f"{name} of a batch has the shape {tuple(tensor.shape)}: the memory must "
            f"return {tuple(expected)}"
        )


@functools.singledispatch
def check_batch(batch: object, play: Play) -> None:
    """Checks that a batch has the shapes that it promises. A batch that another package
    defines promises nothing."""


@check_batch.register
def _(batch: Rollout, play: Play) -> None:
    lead = tuple(batch.reward.shape)
    count = tuple(batch.bootstrap_obs.shape[:1])
    assert len(lead) == 2, f"the reward of a rollout must be (T, N), it is {lead}"
    of_steps = ("log_prob", "value", "terminated", "truncated", "version")
    check_shapes(
        {
            "obs": (batch.obs, (*lead, *play.memory_shape)),
            "action": (batch.action, (*lead, *play.action_shape)),
            "bootstrap_obs": (batch.bootstrap_obs, (*count, *play.memory_shape)),
            "bootstrap_t": (batch.bootstrap_t, count),
            "bootstrap_n": (batch.bootstrap_n, count),
            **{name: (getattr(batch, name), lead) for name in of_steps},
        }
    )
    assert batch.terminated.dtype == batch.truncated.dtype == torch.bool, (
        "terminated and truncated of a rollout must be torch.bool"
    )
    assert (batch.version == play.agent.learner.version).any(), (
        "no step of a rollout is of the present policy: count Learner.version in "
        "`stepped` only, and record it in Act.version"
    )


@check_batch.register
def _(batch: TransitionSource, play: Play) -> None:
    assert batch.num_batches > 0, "a replay memory handed out no batches to sample"
    stored = play.agent.memory
    assert stored is not None
    state = saved(whole(stored))
    sample: Transitions = batch.sample(play.frame)
    load_whole(stored, state)
    memory: Any = play.spec.agent.memory
    size = (memory.batch_size,)
    numbers = {"reward": sample.reward, "discount": sample.discount}
    if sample.weight is not None:
        numbers["weight"] = sample.weight
    check_shapes(
        {
            "obs": (sample.obs, (*size, *play.memory_shape)),
            "next_obs": (sample.next_obs, (*size, *play.memory_shape)),
            "action": (sample.action, (*size, *play.action_shape)),
            "index": (sample.index, size),
            **{name: (number, size) for name, number in numbers.items()},
        }
    )
    for name, number in numbers.items():
        assert number.dtype == torch.float32, (
            f"{name} of a sample is {number.dtype}: return torch.float32"
        )
    if sample.weight is not None:
        right = sample.weight.min() >= 0 and 0 < sample.weight.mean() <= 1
        assert right, "weights of a sample must be >= 0, and 1 on average at most"


@check_batch.register
def _(batch: ImitationBatch, play: Play) -> None:
    check_batch(batch.rollout, play)
