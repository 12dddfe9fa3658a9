"""What pages show of growing files: read in parts, and made again no more often than it costs."""

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, final

from slm_lab.board.library import Stamp
from slm_lab.core.errors import UsageError
from slm_lab.metrics.reader import GrowingRows, Rows
from slm_lab.storage.intact import read_saved_rows
from slm_lab.storage.run_dir import SessionPaths

SHARE = 0.01
"""The share of a core that one part of a page may take while its files grow."""
MOST_FILES, MOST_PARTS = 400, 100
"""The numbers of files and of parts that are kept in memory."""


class Part(NamedTuple):
    """A part of a page: what it shows changes with its stamp."""

    stamp: Stamp
    make: Callable[[], Any]


class Made(NamedTuple):
    """A part as it was made; `serial` is another number for each, also after a restart."""

    serial: str
    shown: Any


@final
class Parts:
    """The newest of each part. A part that takes long is made again later than its files change."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._known: dict[object, tuple[Stamp, float, Made]] = {}
        self._serials = count(time.time_ns())

    def get(self, key: object, part: Part) -> Made:
        """The part, made now if it is new, or its stamp has changed and the time has come."""
        with self._lock:
            known = self._known.pop(key, None)
            if known is None or (known[0] != part.stamp and time.monotonic() >= known[1]):
                began, at = time.thread_time(), time.monotonic()
                made = Made(str(next(self._serials)), part.make())
                known = part.stamp, at + (time.thread_time() - began) / SHARE, made
            self._known[key] = known  # the last one used is the last one to go
            while len(self._known) > MOST_PARTS:
                del self._known[next(iter(self._known))]
            return known[2]


@final
class LiveRows:
    """The rows of Sessions: files are verified when they are first read, and then followed."""

    def __init__(self) -> None:
        self._files: dict[Path, GrowingRows] = {}

    def read(self, paths: SessionPaths, file: Path) -> Rows:
        """As `read_saved_rows`. Raises UsageError."""
        growing = self._files.pop(file, None)
        if growing is None:
            read_saved_rows(paths, file)
            growing = GrowingRows(file)
        try:
            rows = growing.read()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot be read: {error}") from None
        self._files[file] = growing
        while len(self._files) > MOST_FILES:
            del self._files[next(iter(self._files))]
        return rows


def tail(path: Path, most: int = 6000) -> str:
    """The last whole lines of a text file, without signs that cannot be shown."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            text = file.read(most).decode(errors="replace")
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    text = text if size <= most else text.partition("\n")[2]
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "·" for sign in text)
