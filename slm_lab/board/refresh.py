"""Parts of pages are made again when their files change, and no more often than it
costs."""

import time
from collections.abc import Callable
from itertools import count
from threading import RLock
from typing import Any, NamedTuple, final

from slm_lab.core.files import Stamp

SHARE = 0.007
"""The share of a core that one part of a page may take while its files grow."""
MOST_PARTS = 100
"""The number of parts that are kept in memory."""


class Part(NamedTuple):
    """A part of a page: what it shows changes with its stamp."""

    stamp: Stamp
    make: Callable[[], Any]


class Made(NamedTuple):
    """A part as it was made; `serial` is another number for each, also after a
    restart."""

    serial: str
    shown: Any


@final
class Parts:
    """The newest of each part. A part that takes long is made again later than its
    files change."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._known: dict[object, tuple[Stamp, float, Made]] = {}
        self._serials = count(time.time_ns())

    def get(self, key: object, part: Part) -> Made:
        """The part, made now if it is new, or its stamp has changed and the time has
        come."""
        with self._lock:
            known = self._known.pop(key, None)
            if known is None or (
                known[0] != part.stamp and time.monotonic() >= known[1]
            ):
                began = time.thread_time()
                at = time.monotonic()
                made = Made(str(next(self._serials)), part.make())
                known = part.stamp, at + (time.thread_time() - began) / SHARE, made
            self._known[key] = known  # the last one used is the last one to go
            while len(self._known) > MOST_PARTS:
                del self._known[next(iter(self._known))]
            return known[2]
