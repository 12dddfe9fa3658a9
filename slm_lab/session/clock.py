"""The frame clock of a Trial."""

from collections.abc import Sequence

import numpy as np

from slm_lab.core.types import IntArray


class Clock:
    """Counts environment steps, summed over environments. `slots` holds one int64 per
    Session that shares the budget. Only that Session writes it: a shared counter would
    lose increments, and a lock would stay held if its holder died. The total is the sum
    of the slots; `max_frame` bounds it."""

    def __init__(self, slots: IntArray, index: int, max_frame: int) -> None:
        if slots.dtype != np.int64:
            raise TypeError(f"clock slots are int64, not {slots.dtype}")
        self._slots = slots
        self._index = index
        self._alone = len(slots) == 1
        self._max_frame = max_frame
        self.frame = int(slots[index])

    @property
    def total_frame(self) -> int:
        """Frames of all Sessions together."""
        if self._alone:
            return self.frame
        return sum(self._slots.tolist())

    @property
    def frames(self) -> list[int]:
        """Frames of every Session, including this one."""
        return [int(frame) for frame in self._slots]

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent, so that no further step may begin."""
        return self.total_frame >= self._max_frame

    def tick(self, frames: int) -> None:
        """Adds `frames` to this Session's count."""
        self.set(self.frame + frames)

    def load(self, frame: int, frames: Sequence[int]) -> None:
        """Restores the saved `frame` and `frames`. The count never decreases: other
        Sessions read it, and another process may be ahead."""
        self.set(max(self.frame, frame))

    def set(self, frame: int) -> None:
        """Sets this Session's count, as a resumed Session does."""
        self.frame = frame
        self._slots[self._index] = frame
