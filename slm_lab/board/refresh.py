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


class PagePart(NamedTuple):
    """A part of a page: what it shows changes with its stamp."""

    stamp: Stamp
    make: Callable[[], Any]


class Made(NamedTuple):
    """A part as it was made; `serial` is another number for each, also after a
    restart."""

    serial: str
    shown: Any


class _Kept(NamedTuple):
    """A part in memory, the stamp that it was made with, and the earliest time to make
    it again."""

    stamp: Stamp
    due: float
    made: Made


@final
class Parts:
    """The newest of each part. A part that takes long is made again later than its
    files change."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._kept: dict[object, _Kept] = {}
        self._serials = count(time.time_ns())

    def get(self, key: object, part: PagePart) -> Made:
        """The part, made now if it is new, or its stamp has changed and the time has
        come."""
        with self._lock:
            kept = self._kept.pop(key, None)
            now = time.monotonic()
            if kept is None or (kept.stamp != part.stamp and now >= kept.due):
                began = time.thread_time()
                made = Made(str(next(self._serials)), part.make())
                seconds = time.thread_time() - began
                kept = _Kept(part.stamp, now + seconds / SHARE, made)
            self._kept[key] = kept  # the last one used is the last one to go
            while len(self._kept) > MOST_PARTS:
                del self._kept[next(iter(self._kept))]
            return kept.made
