"""The interface of every memory, and when a replay memory has batches due."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch

from slm_lab.agent.batch import VectorStep
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.schedule import Schedule
from slm_lab.core.state import HasState
from slm_lab.core.types import Array, Normalization, StateDict


@dataclass(frozen=True)
class TrainingSchedule:
    """Says how many batches are due as transitions are stored. An event of
    `batches_per_event` batches occurs at most once per vector step. It occurs when the
    count of stored transitions crosses a multiple of `frequency` and has reached
    `start`. With `update_to_data` the batches per transition stored after `start` are
    exactly that number."""

    frequency: int
    start: int
    batches_per_event: int = 1
    update_to_data: float | None = None

    def due(self, before: int, after: int) -> int:
        """Batches due when the count of stored transitions rises from `before` to
        `after`."""
        if after < self.start:
            return 0
        if self.update_to_data is not None:
            return self._owed(after) - self._owed(before)
        crosses = after // self.frequency > before // self.frequency
        if crosses:
            return self.batches_per_event
        return 0

    def before_training(self, num_envs: int) -> int:
        """Transitions stored before training begins to count them. With
        `update_to_data` these are the first `start`. Otherwise every event, the first
        one included, counts for the transitions between two events."""
        if self.update_to_data is not None:
            return self.start
        first = _round_up(max(self.start, 1), num_envs)
        if not self.due(first - num_envs, first):
            first = _round_up(_round_up(first, self.frequency), num_envs)
        return first - max(self.frequency, num_envs)

    def owed(self, stored: int) -> int | None:
        """Batches owed in all when `stored` transitions are; None without
        `update_to_data`, where every event has as many."""
        if self.update_to_data is None:
            return None
        return self._owed(stored)

    def _owed(self, stored: int) -> int:
        """Batches owed in all, counted from `start`; stateless, so that a resume loses
        none."""
        ratio = self.update_to_data or 0.0
        return math.floor(ratio * max(stored - self.start, 0) + 1e-9)


def _round_up(count: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `count`."""
    return -(-count // unit) * unit


@dataclass(frozen=True)
class ReplayConfig:
    """The replay of an off-policy algorithm."""

    schedule: TrainingSchedule
    gamma: float
    """γ at the start of the run."""
    num_steps: int
    """n of n-step returns."""
    seed: int
    recurrent: RecurrentLayout | None = None
    """The recurrent state of the networks: with it sequences are sampled, not single
    steps."""
    gamma_schedule: Schedule | None = None
    """γ on the trial's clock; None: it does not change."""


class AppendLog(ABC):
    """Steps numbered from 0 in order; the newest are kept, the oldest overwritten. An
    added step does not change, except that `Memory.break_off` may end the episodes of
    the newest. So all but the newest need to be saved only once."""

    count: int
    """Steps added so far; the newest is number `count` − 1."""
    capacity: int
    """The most steps that are kept."""

    @property
    def first(self) -> int:
        """The number of the oldest step that is kept."""
        return max(self.count - self.capacity, 0)

    @abstractmethod
    def content(self, first: int, end: int) -> StateDict:
        """A copy of the kept steps numbered `first` to `end` − 1."""

    @abstractmethod
    def load_content(self, content: StateDict) -> None:
        """Puts steps back where they were, except those overwritten since. If two
        contents have the same step, the later one holds."""


BatchT = TypeVar("BatchT", covariant=True)


@dataclass(frozen=True)
class MemoryLayout:
    """The shapes of a stored step, and how many steps an algorithm learns from at
    once."""

    horizon: int
    """Steps of each environment between two training events."""
    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[np.generic]
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[np.generic]
    replay: ReplayConfig | None = None
    """The replay of memories that are sampled from; None for memories that are used
    once."""
    frame_stack: int = 1
    """Frames in an observation, in equal parts of its first axis, the newest last; 1:
    no stack. Within an episode each observation is the one before, shifted by one
    frame."""
    scratch: Path | None = None
    normalization: Normalization | None = None
    """Normalises stored raw values when they are sampled; None: nothing is
    normalised."""
    device: torch.device | None = None
    """The device of the networks; None: the CPU."""

    steps_on_device: bool = False
    """Whether steps are tensors on `device`."""

    is_packed: bool = False
    """Whether observations are rows with a recurrent state in them."""

    may_be_absent: bool = False
    """Whether a step may have rows whose agent did not act, see
    `VectorStep.absent`."""

    @property
    def rollouts_keep_raw(self) -> bool:
        """Whether rollouts are kept after training on them, and something is
        normalised."""
        return self.replay is not None and self.normalization is not None


class Memory(HasState, Generic[BatchT]):
    """Takes one vector step at a time and hands out batches when training is due. Its
    state is all that is stored, but for the steps in `log`, which are loaded after
    it."""

    log: AppendLog | None = None
    """Its steps, if they are so many that a checkpoint writes only the new ones; else
    None."""

    @classmethod
    def build(cls, spec: Any, layout: MemoryLayout) -> Self:
        """The memory that a block of a spec defines, with room for such steps: for
        memories of other packages. By default its keys change nothing."""
        return cls(layout)  # type: ignore[call-arg]

    @abstractmethod
    def add(self, step: VectorStep) -> None:
        """Copies one step of all N environments; the caller may reuse the arrays. A
        memory that is used once stores normalised values. One that keeps steps stores
        raw values, and normalises them when they are sampled."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether a batch is due."""

    @property
    def num_samples(self) -> int:
        """Samples of the next batch if batches differ in size, else 1."""
        return 1

    @abstractmethod
    def take(self) -> BatchT:
        """The batch to learn from, once; valid until the next `add`."""

    @abstractmethod
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Truncates the running episodes after their last step, which ended in
        `next_obs` (N, …). `raw_next_obs` is the same before normalisation; None:
        nothing is normalised. A resumed run calls it if the state of its environments
        could not be restored."""
