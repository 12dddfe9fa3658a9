"""The plain records that pass between the halves of an agent."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from slm_lab.agent.recurrent_state import StateAround
from slm_lab.core.types import Array, FloatArray


class Act(NamedTuple):
    """What the actor did in one vector step, and what it believed when it did so."""

    action: Array
    """(N, *action_shape), what the environment receives."""
    log_prob: FloatArray
    """(N,) log π(a|s) of the behaviour policy; never recomputed when learning."""
    value: FloatArray
    """(N,) V(s) in units of return; NaN where the algorithm has no critic."""
    version: int
    """How many learner updates the acting weights had seen."""
    state_around: StateAround | None = None
    """The recurrent state around the step, where there is one."""


@dataclass(frozen=True)
class Rollout:
    """T consecutive steps of N environments under (nearly) one policy.

    The state after step t is `obs[t + 1]`, except after the last step and where an episode was
    truncated; those states are `bootstrap_obs`, at the places `bootstrap_t`, `bootstrap_n`.
    """

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
    """(T, N) bool: the task itself ended, so nothing follows to bootstrap from"""
    truncated: Tensor
    """(T, N) bool: the episode was cut off, its last state still has a value"""
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
        """(T, N) V of the state each step ended in, given V of `bootstrap_obs`, (K,).

        Where a step terminated, the number is meaningless and must be masked.
        """
        next_value = self.value.roll(-1, 0)
        next_value[self.bootstrap_t, self.bootstrap_n] = bootstrap_value
        return next_value


@dataclass(frozen=True)
class RawRollout(Rollout):
    """A rollout that is also kept for long, with what was normalised of it as it was before."""

    raw_obs: Tensor
    """(T, N, *obs_shape)"""
    raw_reward: Tensor
    """(T, N)"""


@dataclass(frozen=True)
class Transitions:
    """B steps in no order, each with what followed it within n steps."""

    obs: Tensor
    """(B, *obs_shape)"""
    action: Tensor
    """(B, *action_shape)"""
    log_prob: Tensor
    """(B,) log π(a|s) of the policy that acted; NaN where the memory does not keep it"""
    reward: Tensor
    """(B,) Σ_{i<m} γ^i r_{t+i} over the m ≤ n steps until the episode or what is known ends"""
    discount: Tensor
    """(B,) γ^m, or 0 where the task itself ended: what the value of `next_obs` counts for"""
    next_obs: Tensor
    """(B, *obs_shape) the state that the m-th step really ended in"""
    weight: Tensor | None
    """(B,) importance of each sample in the loss; None where they were drawn uniformly"""
    index: Tensor
    """(B,) int64: where each lies in its memory, to report its error back"""

    def to(self, device: torch.device) -> "Transitions":
        """The same on `device`."""
        if self.obs.device == device:
            return self
        tensors = {name: t.to(device) for name, t in vars(self).items() if t is not None}
        return replace(self, **tensors)


class TransitionSource(ABC):
    """What a training event of an off-policy algorithm draws from."""

    num_batches: int
    """Batches that this event is to draw."""
    num_stored: int
    """Transitions stored so far, those that are forgotten included: the Session's own clock."""
    num_trained_on: int
    """Those of them that the gradient steps so far are counted against: not what was gathered
    before training began."""

    @abstractmethod
    def sample(self, frame: int) -> Transitions:
        """The next batch, at the trial's clock `frame`."""

    @abstractmethod
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """Tells how wrong the learner was about the samples at `index`, both (B,)."""


class PastReturns(ABC):
    """Steps of past episodes, each with the return that followed it."""

    @property
    @abstractmethod
    def num_stored(self) -> int:
        """How many steps can be drawn: none before the first episode has ended."""

    @abstractmethod
    def add(self, rollout: Rollout, bootstrap_value: Tensor) -> None:
        """Takes a rollout into the past; `bootstrap_value` is V of its `bootstrap_obs`, (K,)."""

    @abstractmethod
    def sample(self, frame: int) -> Transitions:
        """A batch whose `reward` is the whole return, at the trial's clock `frame`."""

    @abstractmethod
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """Tells how much better than expected the samples at `index` were, both (B,)."""


class ImitationBatch(NamedTuple):
    """What self-imitation learns from."""

    rollout: Rollout
    """What the policy has just done."""
    past: PastReturns
    """What came of what it did before."""
