"""What this program has started: it runs in its own process."""

import threading
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from slm_lab.api.callbacks import Callbacks
from slm_lab.api.process import RELAY_SECONDS, LabProcess, in_background

StartedT = TypeVar("StartedT", bound="Started")

TICK = 0.25
"""Seconds between two looks at what was written."""


class Started:
    """A run, search or comparison that this program has started, or found in its folder."""

    def __init__(
        self, folder: Path, process: LabProcess | None = None, callbacks: Callbacks | None = None
    ) -> None:
        self.folder = folder
        """The folder with all its files."""
        self.source = str(folder)
        """What `slm_lab.load` finds it by: the folder, FOLDER:t3, or the file of a shared run."""
        self._process = process
        self._callbacks = callbacks or Callbacks()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether this program has started it, and it has not ended."""
        return self._process is not None and self._process.is_running

    def stop(self) -> None:
        """Asks it to save and end; returns at once. It can be resumed."""
        if self._process is not None:
            self._process.stop()

    def wait(self) -> None:
        """Waits for its end, and for its callbacks; a callback may wait for the end alone.

        Ctrl-C makes it save and end, a second one ends it at once; then KeyboardInterrupt is
        raised. Raises TrainingFailed, with the reasons, if it fails.
        """
        process = self._process
        if process is None:
            return
        try:
            if self._callbacks.thread is threading.current_thread():
                process.join()
            elif self._thread is not None:
                self._thread.join()
            else:
                self._watch()
        except KeyboardInterrupt:
            process.stop()
            while process.is_running:
                try:
                    process.join()
                except KeyboardInterrupt:
                    process.stop(at_once=True)
            if self._thread is None:
                self._callbacks.end(self)
            else:
                self._thread.join(RELAY_SECONDS)
            raise
        process.check()

    def __fspath__(self) -> str:
        """Its `source`, so that it can be given where a run or a folder is asked for."""
        return self.source

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.source}>"

    def _watch(self) -> None:
        while self._process is not None and self._process.is_running:
            self._callbacks.tick(self)
            self._process.join(TICK)
        self._callbacks.tick(self)
        self._callbacks.end(self)


def followed(started: StartedT, wait: bool) -> StartedT:
    """Follows it to its end: in this thread, raising as `Started.wait`, or in another thread."""
    if wait:
        started.wait()
    else:
        started._thread = in_background(started._watch)
    return started
