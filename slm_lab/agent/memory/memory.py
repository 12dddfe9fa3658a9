"""What every memory does."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from slm_lab.agent.batch import Act
from slm_lab.core.types import Array, BoolArray, FloatArray, StateDict

BatchT = TypeVar("BatchT", covariant=True)


class Memory(ABC, Generic[BatchT]):
    """Takes one vector step at a time and hands out batches when it is time to learn."""

    @abstractmethod
    def add(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
    ) -> None:
        """Copies one step of all N environments; the arrays may be reused by the caller."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is something to learn from now."""

    @abstractmethod
    def take(self) -> BatchT:
        """The batch to learn from; valid until the next `add`."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Everything that is waiting."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores what was waiting."""
