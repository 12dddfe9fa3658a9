"""Detects processes that make no progress."""

import time
from collections.abc import Hashable, Sequence
from typing import final


@final
class HangDetector:
    """Measures how long each of W processes has shown no sign of life although one was due.

    The caller defines the signs and when one is due.
    """

    def __init__(self, count: int) -> None:
        self._signs: list[Hashable | None] = [None] * count
        self._since = [time.monotonic()] * count

    def seconds(self, signs: Sequence[Hashable | None]) -> list[float]:
        """Seconds (W,) since each last sign; call it a few times a second.

        `signs` (W,): a value that changes while a process makes progress, or None if none is due.
        """
        now = time.monotonic()
        for index, sign in enumerate(signs):
            if sign is None or sign != self._signs[index]:
                self._since[index] = now
            if sign is not None:
                self._signs[index] = sign
        return [now - since for since in self._since]
