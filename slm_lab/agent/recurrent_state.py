"""What an actor remembers of the running episodes, and how it travels with the observations.

With a recurrent net the lab's memories hold rows in the place of observations: the observation, the
recurrent state in which it was made, and a mark where an episode begins (see `net/recurrent.py`).
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.core.types import Array, BoolArray, FloatArray, StateDict


@dataclass(frozen=True)
class RecurrentLayout:
    """How much is remembered, and how far learning looks back."""

    state_size: int
    """H, over all networks"""
    stretch: int
    """Steps over which gradients flow: L"""
    burn_in: int = 0
    """Steps at the beginning of a replayed sequence that are not learned from"""

    @property
    def row_size(self) -> int:
        """What a row has more than the observation."""
        return self.state_size + 1


class StateAround(NamedTuple):
    """The recurrent state around one vector step."""

    before: FloatArray
    """(N, H)"""
    begins: BoolArray
    """(N,) whether it is the first step of its episode"""
    after: FloatArray
    """(N, H)"""

    def packed_obs(self, obs: Array, next_obs: Array) -> tuple[FloatArray, FloatArray]:
        """(N, D + H + 1) each, of the step and of what it ended in, which begins by itself."""
        everywhere = np.ones(len(obs), np.bool_)
        return pack_obs(obs, self.before, self.begins), pack_obs(next_obs, self.after, everywhere)


def pack_obs(obs: Array, state: FloatArray, begins: BoolArray) -> FloatArray:
    """Observations (N, D), states (N, H) and marks (N,) side by side."""
    return np.concatenate([obs, state, begins[:, None]], 1, dtype=np.float32)


@final
class RecurrentState:
    """The recurrent state of N environments. It is zero where an episode begins."""

    def __init__(self, num_envs: int, state_size: int) -> None:
        self._state = np.zeros((num_envs, state_size), np.float32)
        self._begins = np.ones(num_envs, np.bool_)

    def packed_obs(self, obs: Array) -> FloatArray:
        """Observations (N, D) to rows that all begin by themselves."""
        return pack_obs(obs, self._state, np.ones_like(self._begins))

    def move_on(self, state: FloatArray) -> StateAround:
        """Remembers the state (N, H) after a step."""
        state_around = StateAround(self._state, self._begins, state)
        self._state, self._begins = state, np.zeros_like(self._begins)
        return state_around

    def reset(self, ended: BoolArray) -> None:
        """Begins anew where an episode has ended (N,)."""
        if ended.any():
            self._state = np.where(ended[:, None], np.float32(0.0), self._state)
            self._begins = self._begins | ended

    def state_dict(self) -> StateDict:
        """States and marks."""
        return {"state": self._state.copy(), "begins": self._begins.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores them."""
        self._state = np.asarray(state["state"], np.float32)
        self._begins = np.asarray(state["begins"], np.bool_)


def marked(packed_obs: FloatArray, begins: BoolArray) -> FloatArray:
    """A copy of rows (N, D + H + 1) that also begin by themselves where `begins` (N,) says so.

    An actor knows where its episodes begin. A memory knows in addition where it was broken off:
    the next row may be another actor's.
    """
    packed_obs = packed_obs.copy()
    packed_obs[begins, -1] = 1.0
    return packed_obs


def begin_sequences(obs: FloatArray, next_obs: FloatArray, length: int) -> None:
    """Marks the first of every `length` rows, both (B, D + H + 1), which follow each other.

    Where a step begins an episode the state it led to does not continue the one before either.
    """
    obs[::length, -1] = 1.0
    next_obs[:, -1] = obs[:, -1]


def in_rows(steps: Tensor, recurrent: RecurrentLayout | None) -> Tensor:
    """(T, N, …) to (T·N, …): step by step, or where rows continue each other, env by env."""
    return steps.flatten(0, 1) if recurrent is None else steps.transpose(0, 1).flatten(0, 1)


def obs_in_rows(obs: Tensor, recurrent: RecurrentLayout | None) -> Tensor:
    """The same of what networks see. A new sequence begins every L steps."""
    if recurrent is None:
        return obs.flatten(0, 1)
    packed_obs = obs.transpose(0, 1).clone()
    packed_obs[:, :: recurrent.stretch, -1] = 1.0
    return packed_obs.flatten(0, 1)


def shuffled(
    packed_obs: Tensor, recurrent: RecurrentLayout | None, generator: torch.Generator
) -> Tensor:
    """An order of `packed_obs` (B, …) at random, in which those of a sequence stay together."""
    size = len(packed_obs)
    if recurrent is None:
        return torch.randperm(size, generator=generator)
    (begin,) = (packed_obs[:, -1] != 0).cpu().nonzero(as_tuple=True)
    lengths = torch.diff(begin, append=torch.tensor([size]))
    order = torch.randperm(len(begin), generator=generator)
    begin, lengths = begin[order], lengths[order]
    before = lengths.cumsum(0) - lengths
    return torch.arange(size) + torch.repeat_interleave(begin - before, lengths)
