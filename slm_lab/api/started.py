"""What this program has started: it runs in its own process."""

import threading
import time
from contextvars import copy_context
from pathlib import Path
from typing import Protocol

from slm_lab.api.command import TICK, Command


class Watcher(Protocol):
    """Follows what a command writes."""

    def tick(self) -> None:
        """Called a few times a second."""

    def end(self, interrupted: bool) -> None:
        """Called once, after the command has ended, perhaps by Ctrl-C."""


class Started:
    """A run, search or comparison that this program has started, or found in its folder."""

    def __init__(
        self, folder: Path, command: Command | None, watcher: Watcher | None = None
    ) -> None:
        self._folder = folder
        self._command = command
        self._watcher = watcher
        self._thread: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """The folder with all its files."""
        return self._folder

    @property
    def is_running(self) -> bool:
        """Whether this program has started it, and it has not ended."""
        return self._command is not None and self._command.is_running

    def stop(self) -> None:
        """Asks it to save and end; returns at once. It can be resumed."""
        if self._command is not None:
            self._command.stop()

    def wait(self) -> None:
        """Waits for its end.

        Ctrl-C makes it save and end, a second one ends it at once; then KeyboardInterrupt is
        raised. Raises TrainingFailed, with the reasons, if it fails.
        """
        if self._command is None:
            return
        watcher, self._watcher = self._watcher, None
        interrupted = False
        try:
            self._command.wait(lambda: None if watcher is None else watcher.tick())
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            if watcher is not None:
                watcher.end(interrupted)
            if self._thread is not None and not interrupted:
                self._thread.join()

    def watch_in_background(self) -> None:
        """Follows what it writes in a thread, so that `wait` only waits."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            run_here = copy_context().run  # prints below the same cell of a notebook
            arguments = (self._watch, watcher)
            self._thread = threading.Thread(target=run_here, args=arguments, daemon=True)
            self._thread.start()

    def _watch(self, watcher: Watcher) -> None:
        while self.is_running:
            watcher.tick()
            time.sleep(TICK)
        watcher.end(interrupted=False)
