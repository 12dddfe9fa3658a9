"""The recurrent state of running episodes, packed beside observations.

With a recurrent net the lab's memories store packed rows in place of observations. A
row has the observation, the recurrent state before it, and a mark that starts an
episode (see `net/recurrent.py`). A row is of float32. If the observation is of bytes,
so is the row. Bytes then hold the floats of the state, and the last byte is the
mark."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.core.observation import ALIGNMENT, BYTE, FLOAT32, ObservationLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, FloatArray


@dataclass(frozen=True)
class RecurrentLayout:
    """The size of the recurrent state, and how far learning looks back."""

    state_size: int
    """H, over all networks"""
    seq_len: int
    """Steps over which gradients flow: L"""
    burn_in: int = 0
    """Steps at the start of a replayed sequence that are not learned from"""

    def extra_columns(self, dtype: np.dtype[np.generic]) -> int:
        """Columns of a packed row of this type besides the observation."""
        return (self.state_size + 1) * (FLOAT32.itemsize // dtype.itemsize)

    def packed(self, layout: ObservationLayout) -> ObservationLayout:
        """The layout of rows that hold observations of this layout."""
        dtype = BYTE if layout.dtype == BYTE else FLOAT32
        size = obs_columns(math.prod(layout.shape), dtype)
        return ObservationLayout((size + self.extra_columns(dtype),), dtype)


class StateAround(NamedTuple):
    """The recurrent state before and after one vector step."""

    before: FloatArray
    """(N, H)"""
    starts: BoolArray
    """(N,) whether it is the first step of its episode"""
    after: FloatArray
    """(N, H)"""

    def packed_obs(self, obs: Array, next_obs: Array) -> tuple[Array, Array]:
        """Packed rows of the step, and of its next state, which starts a sequence."""
        everywhere = np.ones(len(obs), np.bool_)
        return pack_obs(obs, self.before, self.starts), pack_obs(
            next_obs, self.after, everywhere
        )


def obs_columns(num_numbers: int, dtype: np.dtype[np.generic]) -> int:
    """Columns of a packed row for an observation of so many numbers: behind bytes the
    floats must be aligned."""
    if dtype == BYTE:
        return num_numbers + -num_numbers % ALIGNMENT
    return num_numbers


def pack_obs(obs: Array, state: FloatArray, starts: BoolArray) -> Array:
    """Observations (N, ...), states (N, H) and start marks (N,) side by side. The
    result is (N, D + H + 1) of float32, or rows of bytes."""
    numbers = obs.reshape(len(obs), -1)
    if obs.dtype != BYTE:
        return np.concatenate([numbers, state, starts[:, None]], 1, dtype=np.float32)
    num_numbers = numbers.shape[1]
    first = obs_columns(num_numbers, obs.dtype)
    last = first + state.shape[1] * FLOAT32.itemsize
    rows = np.zeros((len(obs), last + FLOAT32.itemsize), np.uint8)
    rows[:, :num_numbers] = numbers
    rows[:, first:last] = np.ascontiguousarray(state).view(np.uint8)
    rows[:, -1] = starts
    return rows


@final
class RecurrentState(SavedFields):
    """The recurrent state of N environments. It is zero where an episode starts."""

    saved: ClassVar = {"state": "_state", "begins": "_starts"}

    def __init__(self, num_envs: int, state_size: int) -> None:
        self.size = state_size
        self._state = np.zeros((num_envs, state_size), np.float32)
        self._starts = np.ones(num_envs, np.bool_)

    def packed_obs(self, obs: Array) -> Array:
        """Observations (N, ...) as rows that each start a sequence."""
        return pack_obs(obs, self._state, np.ones_like(self._starts))

    def advance(self, state: FloatArray) -> StateAround:
        """Stores the state (N, H) after a step; returns the states around it."""
        state_around = StateAround(self._state, self._starts, state)
        self._state = state
        self._starts = np.zeros_like(self._starts)
        return state_around

    def reset(self, ended: BoolArray) -> None:
        """Zeroes the state where an episode has ended (N,)."""
        if ended.any():
            self._state = np.where(ended[:, None], np.float32(0.0), self._state)
            self._starts = self._starts | ended


def mark_starts(packed_obs: Array, starts: BoolArray) -> Array:
    """A copy of packed rows (N, ...) that also start a sequence where `starts` (N,) is
    true. An actor knows where its episodes start. A memory also knows where it was
    broken off: the next row may be another actor's."""
    packed_obs = packed_obs.copy()
    packed_obs[starts, -1] = 1
    return packed_obs


def mark_sequence_starts(obs: Array, next_obs: Array, length: int) -> None:
    """Marks the first of every `length` consecutive packed rows, both (B, ...). If a
    step starts a sequence, the state that it led to does not continue the row before
    either."""
    obs[::length, -1] = 1
    next_obs[:, -1] = obs[:, -1]


def flatten_steps(steps: Tensor, recurrent: RecurrentLayout | None) -> Tensor:
    """(T, N, …) to (T·N, …): step by step, or for recurrent nets environment by
    environment."""
    if recurrent is None:
        return steps.flatten(0, 1)
    return steps.transpose(0, 1).flatten(0, 1)


def unflatten_steps(
    rows: Tensor, steps: Tensor, recurrent: RecurrentLayout | None
) -> Tensor:
    """(T·N,) to (T, N) on the device of `steps` (T, N): the inverse of
    `flatten_steps`."""
    num_steps, num_envs = steps.shape
    rows = rows.to(steps.device)
    if recurrent is None:
        return rows.view(num_steps, num_envs)
    return rows.view(num_envs, num_steps).T


def flatten_obs(obs: Tensor, recurrent: RecurrentLayout | None) -> Tensor:
    """`flatten_steps` of network inputs. A new sequence starts every L steps."""
    if recurrent is None:
        return obs.flatten(0, 1)
    packed_obs = obs.transpose(0, 1).clone()
    packed_obs[:, :: recurrent.seq_len, -1] = 1
    return packed_obs.flatten(0, 1)


def shuffled_order(
    packed_obs: Tensor, recurrent: RecurrentLayout | None, generator: torch.Generator
) -> Tensor:
    """A random order of `packed_obs` (B, …) that keeps the rows of a sequence
    together."""
    size = len(packed_obs)
    if recurrent is None:
        return torch.randperm(size, generator=generator)
    (start,) = (packed_obs[:, -1] != 0).cpu().nonzero(as_tuple=True)
    lengths = torch.diff(start, append=torch.tensor([size]))
    order = torch.randperm(len(start), generator=generator)
    start = start[order]
    lengths = lengths[order]
    before = lengths.cumsum(0) - lengths
    return torch.arange(size) + torch.repeat_interleave(start - before, lengths)
