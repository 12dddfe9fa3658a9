"""Detects processes that make no progress."""

import time
from collections.abc import Callable, Hashable
from typing import TypeAlias, final

Sign: TypeAlias = Callable[[int], Hashable | None]
"""A value that changes while the process of an index makes progress; None if none is due."""
HANG_SECONDS = 300.0
"""How long a process may make no progress although some is due."""
CHECKS_TO_HANG = 4
"""Minimum number of checks without progress, so that a suspended observer blames no one."""


@final
class HangDetector:
    """Finds which of `count` processes show no new sign for `seconds` although progress was due."""

    def __init__(self, count: int, sign: Sign, seconds: float = HANG_SECONDS) -> None:
        self._sign = sign
        self._seconds = seconds
        self._signs: list[Hashable | None] = [None] * count
        self._silent = [0.0] * count
        self._checked_at = time.monotonic()

    def hung(self) -> list[int]:
        """The processes that hang now; call it a few times a second."""
        now = time.monotonic()
        since = min(now - self._checked_at, self._seconds / CHECKS_TO_HANG)
        self._checked_at = now
        for index, before in enumerate(self._signs):
            sign = self._sign(index)
            is_silent = sign is not None and sign == before
            self._silent[index] = self._silent[index] + since if is_silent else 0.0
            self._signs[index] = before if sign is None else sign
        return [index for index, silent in enumerate(self._silent) if silent > self._seconds]
