"""The program or script around a command: its log level, its `--notify` command, its
socket."""

import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

from slm_lab.cli.shell.signals import stopped_like_ctrl_c
from slm_lab.core.errors import LabError
from slm_lab.core.process import (
    LOG_LEVEL,
    SOCKET,
    importing,
    stop_signals_blocked,
)

TIMEOUT = 60.0
"""Seconds after which the user's command is killed, with all that it started."""


def set_log_level(level: str | None) -> None:
    """Sets the level of the lab's logs, in this process and in those that it starts."""
    if level is not None:
        os.environ[LOG_LEVEL] = level.upper()
        logging.getLogger("slm_lab").setLevel(level.upper())


def notify_of(command: str | None, folder: Path | None, code: int) -> None:
    """Runs the user's command. What goes wrong with it is printed, and changes
    nothing."""
    if command is None:
        return
    facts = {"SLM_LAB_RUN": str(folder or ""), "SLM_LAB_EXIT_CODE": str(code)}
    child = subprocess.Popen(
        command,
        shell=True,
        env={**os.environ, **facts},
        stdout=sys.__stderr__,  # the standard output may be a document
        start_new_session=True,
    )
    try:
        with stopped_like_ctrl_c():
            ended = child.wait(TIMEOUT)
        reason = ""
        if ended:
            reason = f"ended with {ended}"
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(child.pid, signal.SIGKILL)  # what it has started, too
        child.wait()
        is_late = isinstance(error, subprocess.TimeoutExpired)
        reason = "was killed by Ctrl-C"
        if is_late:
            reason = f"did not end in {TIMEOUT:g} s, and was killed"
    if reason:
        print(f"--notify: {command!r} {reason}", file=sys.stderr)


@final
class ParentProgram:
    """The other end of the socket that SOCKET names, if a program has set it. The
    program gets the run folder and any error. When it ends, the command gets a SIGTERM,
    as if its terminal were closed: a training saves and stops."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """The folder of the run, search or comparison that has begun."""
        # not for the processes that this one starts
        descriptor = os.environ.pop(SOCKET, None)
        self.exists = descriptor is not None
        """Whether a program started the command."""
        if descriptor is None:
            return
        os.set_inheritable(int(descriptor), False)
        self._link = Connection(int(descriptor))

    def receive(self) -> Any:
        """Receives the request of the program. From now on the command ends with the
        program."""
        try:
            with importing():
                request = self._link.recv()
        except EOFError:  # the program has ended before
            raise KeyboardInterrupt from None
        # inherited by the watcher, so the main thread gets the signal
        with stop_signals_blocked():
            threading.Thread(target=self._watch, daemon=True).start()
        return request

    def begun(self, folder: Path) -> None:
        """Sends the folder of the run, search or comparison."""
        self.folder = folder.absolute()
        self.send(self.folder)

    def send(self, message: Path | LabError) -> None:
        """Sends the folder, or an error for the program to raise."""
        if self.exists:
            # the program has ended; the watcher stops this command
            with suppress(OSError):
                self._link.send(message)

    def _watch(self) -> None:
        with suppress(EOFError, OSError):
            self._link.recv()
        os.kill(os.getpid(), signal.SIGTERM)
