"""What every memory does."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

import numpy as np

from slm_lab.agent.batch import Act
from slm_lab.agent.replay_config import ReplayConfig
from slm_lab.core.normalization import Normalization, Unnormalized
from slm_lab.core.types import Array, BoolArray, FloatArray, StateDict
from slm_lab.spec.schema.memory import MemorySpec


class AppendLog(ABC):
    """Steps numbered from 0 in their order; the newest are kept, the oldest forgotten.

    A step stays as it was added, except that `Memory.break_off` may end the episodes of the newest.
    So all but the newest can be saved once and for all.
    """

    count: int
    """Steps added so far; the newest is number `count` − 1."""

    @property
    @abstractmethod
    def capacity(self) -> int:
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
        """Puts steps back where they were, those that have been forgotten since excepted.

        Where two contents have the same step the later one holds.
        """


BatchT = TypeVar("BatchT", covariant=True)


@dataclass(frozen=True)
class MemoryLayout:
    """What has to be stored per step, and how many steps an algorithm learns from at once."""

    horizon: int
    """Steps of each environment between two training events."""
    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[np.generic]
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[np.generic]
    replay: ReplayConfig | None = None
    """Of memories that are drawn from; None for those that are used once."""
    frame_stack: int = 1
    """How many of the last frames an observation consists of, in equal parts of its first axis, the
    newest last; 1: no stack.

    Within an episode each is the one before, moved on by one frame.
    """
    scratch: Path | None = None
    """A folder for files that are of no use to anybody else and leave nothing behind."""
    normalization: Normalization | None = None
    """How what is stored raw is normalised when it is sampled; None: nothing is normalised."""

    @property
    def rollouts_keep_raw(self) -> bool:
        """Whether a rollout is kept for long after it was learned from, and something is
        normalised."""
        return self.replay is not None and self.normalization is not None


class Memory(ABC, Generic[BatchT]):
    """Takes one vector step at a time and hands out batches when it is time to learn."""

    @classmethod
    @abstractmethod
    def build(cls, spec: MemorySpec, layout: MemoryLayout) -> Self:
        """The memory that the spec asks for, with room for such steps."""

    @abstractmethod
    def add(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
        raw: Unnormalized | None = None,
    ) -> None:
        """Copies one step of all N environments; the arrays may be reused by the caller.

        `raw` is what was normalised of it, as it was before. Who learns from a step once has no use
        for it. Who keeps steps for long stores that, and normalises it when it is sampled.
        """

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is something to learn from now."""

    @property
    def num_samples(self) -> int:
        """How many samples the next batch has, where that differs from batch to batch; else 1."""
        return 1

    @abstractmethod
    def take(self) -> BatchT:
        """The batch to learn from, once; valid until the next `add`."""

    @abstractmethod
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Truncates the running episodes after their last step, which ended in `next_obs` (N, …),
        which was `raw_next_obs` before it was normalised; None: the same.

        For a resumed run whose environments could not be put back where they were.
        """

    @property
    def log(self) -> AppendLog | None:
        """Its steps, where they are so many that a checkpoint has only the new ones written."""
        return None

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Everything that is waiting."""

    def state_without_log(self) -> StateDict:
        """The same, less the steps that `log` has."""
        return self.state_dict()

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores what was waiting; what is not in `state` is for `log` to load afterwards."""
