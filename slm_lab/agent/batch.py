"""The plain records that pass between actor, memory and learner, and their description
if a loss is not finite."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.device import moved
from slm_lab.agent.recurrent_state import StateAround
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.types import Array, BoolArray, FloatArray, Unnormalized


class Act(NamedTuple):
    """The actions of one vector step, with the network outputs behind them."""

    action: Array
    """(N, *action_shape), as the environment receives them."""
    log_prob: FloatArray
    """(N,) log π(a|s) of the behaviour policy; learning never recomputes it."""
    value: FloatArray
    """(N,) V(s) in units of return; NaN without a critic."""
    version: int
    """Learner updates that the acting weights had seen."""
    state_around: StateAround | None = None
    """The recurrent state before and after the step; None without recurrent
    networks."""


class VectorStep(NamedTuple):
    """One step of N environments, with what the agent did."""

    obs: Array
    """(N, *obs_shape), as acted on"""
    act: Act
    reward: FloatArray
    """(N,)"""
    terminated: BoolArray
    """(N,)"""
    truncated: BoolArray
    """(N,)"""
    next_obs: Array
    """(N, *obs_shape) the states that the step ended in"""
    raw: Unnormalized | None = None
    """Observations and reward before normalisation; None: nothing is normalised."""
    absent: BoolArray | None = None
    """(N,) the rows whose agent did not act. They are terminated, and nobody learns
    from them. None: all acted."""

    @property
    def done(self) -> BoolArray:
        """Whether each episode ended, (N,)."""
        return self.terminated | self.truncated

    def fields(self, raw: bool) -> dict[str, Array | int]:
        """The arrays of the step that a rollout keeps, by field; `raw`: with the fields
        of `RawRollout`."""
        act = self.act
        fields: dict[str, Array | int] = {
            "obs": self.obs,
            "action": act.action,
            "log_prob": act.log_prob,
            "value": act.value,
            "reward": self.reward,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "version": act.version,
        }
        if raw and self.raw is not None:
            fields |= {"raw_obs": self.raw.obs, "raw_reward": self.raw.reward}
        return fields

    def packed(self, state: StateAround) -> "VectorStep":
        """The step whose observations hold the recurrent state, too."""
        obs, next_obs = state.packed_obs(self.obs, self.next_obs)
        raw = self.raw
        if raw is not None:
            raw_obs, raw_next = state.packed_obs(raw.obs, raw.next_obs)
            raw = Unnormalized(raw_obs, raw.reward, raw_next)
        return self._replace(obs=obs, next_obs=next_obs, raw=raw)

    def unnormalized(self) -> "VectorStep":
        """The step with raw observations and rewards, as replays store it."""
        if self.raw is None:
            return self
        obs, reward, next_obs = self.raw
        return VectorStep(
            obs=obs,
            act=self.act,
            reward=reward,
            terminated=self.terminated,
            truncated=self.truncated,
            next_obs=next_obs,
            absent=self.absent,
        )

    @property
    def num_present(self) -> int:
        """The rows whose agent acted."""
        if self.absent is None:
            return len(self.reward)
        return len(self.reward) - int(np.count_nonzero(self.absent))


@dataclass(frozen=True)
class Rollout:
    """T consecutive steps of N environments under (nearly) one policy. While an episode
    runs, the state after step t is `obs[t + 1]`; after its end that is the next
    episode's first. States after the last step or a truncated one are `bootstrap_obs`,
    at `bootstrap_t` and `bootstrap_n`."""

    obs: Tensor
    """(T, N, *obs_shape)"""
    action: Tensor
    """(T, N, *action_shape)"""
    log_prob: Tensor
    """(T, N)"""
    value: Tensor
    """(T, N)"""
    reward: Tensor
    """(T, N)"""
    terminated: Tensor
    """(T, N) bool: the task itself ended, so there is nothing to bootstrap from"""
    truncated: Tensor
    """(T, N) bool: the episode was cut off; its last state still has a value"""
    bootstrap_obs: Tensor
    """(K, *obs_shape)"""
    bootstrap_t: Tensor
    """(K,) int64"""
    bootstrap_n: Tensor
    """(K,) int64"""
    version: Tensor
    """(T, N) int64, `Act.version` of each step"""

    @property
    def done(self) -> Tensor:
        """(T, N) bool: where the recursion over time is cut."""
        return self.terminated | self.truncated

    def next_value(self, bootstrap_value: Tensor) -> Tensor:
        """(T, N) V of the state each step ended in, from V of `bootstrap_obs`, (K,).
        Where a step terminated the number is meaningless and must be masked."""
        next_value = self.value.roll(-1, 0)
        next_value[self.bootstrap_t, self.bootstrap_n] = bootstrap_value
        return next_value

    def without(self, absent: Tensor, packed: bool) -> "Rollout":
        """The rollout without the steps that are `absent` (T, N), as one column (T', 1)
        of what each environment did. Where the rollout ended, the episode ends as
        truncated, because the state after the last step has a value. `packed` rows of
        recurrent nets start a sequence where an environment's steps begin."""
        n, t = (~absent).T.nonzero(as_tuple=True)
        place = torch.full(absent.shape, -1)
        place[t, n] = torch.arange(len(t))
        steps = {
            name: tensor[t, n].unsqueeze(1)
            for name, tensor in vars(self).items()
            if name not in BOOTSTRAP
        }
        is_last = torch.ones(len(t), dtype=torch.bool)
        is_last[:-1] = n[1:] != n[:-1]
        truncated = steps["truncated"]
        truncated |= is_last[:, None] & ~steps["terminated"]
        if packed:
            starts = is_last.roll(1)
            steps["obs"][starts, :, -1] = 1
        places = place[self.bootstrap_t, self.bootstrap_n]
        is_known = places >= 0
        places = places[is_known]
        return type(self)(
            **steps,
            bootstrap_obs=self.bootstrap_obs[is_known],
            bootstrap_t=places,
            bootstrap_n=torch.zeros_like(places),
        )


BOOTSTRAP = ("bootstrap_obs", "bootstrap_t", "bootstrap_n")
"""The fields of a `Rollout` that have an axis (K,) in place of (T, N)."""


@dataclass(frozen=True)
class RawRollout(Rollout):
    """A rollout that a memory keeps, with its values before normalisation."""

    raw_obs: Tensor
    """(T, N, *obs_shape)"""
    raw_reward: Tensor
    """(T, N)"""


@dataclass(frozen=True)
class Transitions:
    """B steps in no order, each with the result of the n steps from it."""

    obs: Tensor
    """(B, *obs_shape)"""
    action: Tensor
    """(B, *action_shape)"""
    log_prob: Tensor
    """(B,) log π(a|s) of the policy that acted; NaN where the memory does not keep
    it"""
    reward: Tensor
    """(B,) Σ_{i<m} γ^i r_{t+i}; m ≤ n, fewer at the end of the episode or of the known
    steps"""
    discount: Tensor
    """(B,) γ^m, or 0 where the task itself ended: the factor of V(`next_obs`)"""
    next_obs: Tensor
    """(B, *obs_shape) the state that the m-th step ended in"""
    weight: Tensor | None
    """(B,) importance of each sample in the loss; None for uniform sampling"""
    index: Tensor
    """(B,) int64: the index of each in its memory, for `update_priorities`"""

    def to(self, device: torch.device) -> "Transitions":
        """These transitions on `device`; `index` stays where it is."""
        if self.reward.device == device:
            return self
        tensors = {
            name: moved(t, device) for name, t in vars(self).items() if t is not None
        }
        return replace(self, **{**tensors, "index": self.index})


class TransitionSampler(ABC):
    """Samples batches of transitions, possibly by the errors of earlier samples."""

    @abstractmethod
    def sample(self, frame: int) -> Transitions:
        """The next batch, at the trial's clock `frame`."""

    @abstractmethod
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """Records how wrong the learner was about the samples at `index`, both (B,)."""


class TransitionSource(TransitionSampler):
    """The source of an off-policy algorithm's batches in a training event."""

    num_batches: int
    """Batches to sample in this event."""
    num_stored: int
    """Transitions stored so far, overwritten ones included: the Session's own clock."""
    ranks_differ: bool = False
    """Whether other ranks may have stored more or fewer, because agents have left."""

    @property
    def num_owed(self) -> int | None:
        """Batches due so far, this event's included; None: every event has the same
        number."""
        return None

    @property
    @abstractmethod
    def num_trained_on(self) -> int:
        """Transitions stored since training began, which the gradient steps so far
        count against."""


class PastReturns(TransitionSampler):
    """Steps of past episodes. In a batch `reward` is the return that was obtained. An
    error is how much better than expected it was."""

    @property
    @abstractmethod
    def num_stored(self) -> int:
        """Steps that can be sampled: none before the first episode with a positive
        reward."""

    @abstractmethod
    def add(self, rollout: Rollout) -> None:
        """Adds a rollout to the past."""


class ImitationBatch(NamedTuple):
    """The batch of self-imitation."""

    rollout: Rollout
    """The newest steps of the policy."""
    past: PastReturns
    """Earlier steps, with their returns."""


OBSERVATIONS = ("observations", "env.normalize_obs")
REWARDS = ("rewards", "env.reward_scale or env.normalize_reward")
ENV_TENSORS = {
    "obs": OBSERVATIONS,
    "next_obs": OBSERVATIONS,
    "bootstrap_obs": OBSERVATIONS,
    "reward": REWARDS,
}
"""Tensors of a batch that the environment has filled: what they are, and keys that
scale them."""

LARGE = 1e6
"""Observations and rewards from this size on may be why a loss is not finite."""


@contextmanager
def describe_on_error(batch: object) -> Iterator[None]:
    """Adds a description of `batch` to a NonFiniteLossError. A source of batches is no
    record: the batches sampled from it are described instead."""
    try:
        yield
    except NonFiniteLossError as error:
        if not is_dataclass(batch):
            raise
        message = f"{error}{_broken_before(batch)}\n{describe_batch(batch)}"
        raise NonFiniteLossError(message) from error


def _broken_before(batch: object) -> str:
    """A message about values from the environment that are not finite or very large;
    else empty."""
    large = ""
    for name, (what, keys) in ENV_TENSORS.items():
        value = getattr(batch, name, None)
        if not isinstance(value, Tensor) or not value.numel():
            continue
        if not torch.isfinite(value).all():
            beyond = ""
            if name == "reward" and not torch.isnan(value).any():
                beyond = f", or beyond float32: scale those by {keys}"
            return f": the environment gave {what} that are not finite{beyond}"
        size = value.double().abs().max().item()
        if size >= LARGE:
            large = (
                f": the environment gave {what} of up to {size:.3g}; scale them by "
                f"{keys}"
            )
    return large


def describe_batch(batch: object) -> str:
    """One line per tensor of a dataclass: shape, range, and how many values are not
    finite."""
    lines = [f"the batch ({type(batch).__name__}):"]
    for field in fields(batch):  # type: ignore[arg-type]
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) and value.numel():
            lines.append(f"  {field.name} {_describe(value)}")
    return "\n".join(lines)


def _describe(value: Tensor) -> str:
    numbers = value.double()
    text = str(tuple(value.shape))
    finite = numbers[torch.isfinite(numbers)]
    if len(finite):
        least, mean, most = (
            statistic.item()
            for statistic in (finite.min(), finite.mean(), finite.max())
        )
        text += f" min {least:.6g} mean {mean:.6g} max {most:.6g}"
    broken = numbers.numel() - len(finite)
    return text + (f", {broken} values not finite" if broken else "")
