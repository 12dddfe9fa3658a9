"""The frame clock of a Trial."""

from collections.abc import Sequence

import numpy as np

from slm_lab.core.types import IntArray


class Clock:
    """Counts environment steps, summed over environments.

    `slots` holds one int64 per Session that shares the budget, each written by its own Session
    only: a shared counter would lose increments, and a lock would die with its holder. The total
    is the sum. `max_frame` bounds the total.
    """

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
        return self.frame if self._alone else int(self._slots.sum())

    @property
    def frames(self) -> list[int]:
        """Of every Session, this one's among them."""
        return [int(frame) for frame in self._slots]

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent, so that no further step may begin."""
        return self.total_frame >= self._max_frame

    def tick(self, frames: int) -> None:
        """Counts `frames` more on this Session's slot."""
        self.set(self.frame + frames)

    def load(self, frame: int, frames: Sequence[int]) -> None:
        """Goes on with what was saved as `frame` and `frames`.

        It never goes back: others look at it, and another process may have gone further.
        """
        self.set(max(self.frame, frame))

    def set(self, frame: int) -> None:
        """Sets this Session's count, as a resumed Session does."""
        self.frame = frame
        self._slots[self._index] = frame
