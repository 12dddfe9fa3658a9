"""What a memory holds too much of to save it whole each time."""

from abc import ABC, abstractmethod

from slm_lab.core.types import StateDict


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
