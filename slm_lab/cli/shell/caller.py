"""The Python program that started this command, see `slm_lab.api.process`."""

import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import final

from slm_lab.core.errors import LabError
from slm_lab.core.process import stop_signals_blocked

SOCKET = "SLM_LAB_CALLER"
"""The environment variable with the number of the socket's file descriptor."""


@final
class Caller:
    """The other end of the socket that SOCKET names, if a program has set it.

    The program gets the run folder and any error. When it ends, the command gets a SIGTERM, as if
    its terminal were closed: a training saves and stops.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        """Of the run, search or comparison that has begun."""
        descriptor = os.environ.pop(SOCKET, None)  # not for the processes that this one starts
        self.exists = descriptor is not None
        """Whether a program started the command."""
        if descriptor is None:
            return
        os.set_inheritable(int(descriptor), False)
        self._link = Connection(int(descriptor))
        with stop_signals_blocked():  # inherited by the watcher, so the main thread gets the signal
            threading.Thread(target=self._watch, daemon=True).start()

    def begun(self, folder: Path) -> None:
        """Sends the folder of the run, search or comparison."""
        self.folder = folder.absolute()
        self.send(self.folder)

    def send(self, message: Path | LabError) -> None:
        """Sends the folder, or an error for the program to raise."""
        if self.exists:
            with suppress(OSError):  # the program has ended; the watcher stops this command
                self._link.send(message)

    def _watch(self) -> None:
        with suppress(EOFError, OSError):
            self._link.recv()
        os.kill(os.getpid(), signal.SIGTERM)
