"""A command of the lab in its own process, started from Python."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, TextIO, final

from slm_lab.core.errors import LabError, TrainingFailed, UsageError

MAIN = "import sys; sys.argv[0] = 'slm-lab'; from slm_lab.cli.main import main; main()"
"""The lab's command line. Unlike a file or a module, it is not imported again by Sessions."""
SOCKET, PICTURES = "SLM_LAB_CALLER", "SLM_LAB_PICTURES"
"""Environment variables of a command: see `slm_lab.cli.caller` and `slm_lab.cli.display.screen`."""
TICK = 0.25
"""Seconds between two calls of `on_tick`."""
RELAY_SECONDS = 5.0
"""How long the rest of the output may take after the command has ended."""


@final
class Command:
    """`slm-lab` with `words` in its own process.

    So Sessions are watched, and Ctrl-C saves them, whatever this program does; it may be a script
    without a `__main__` guard, a notebook or a test. If this program ends, the command saves and
    stops. Its output appears where `print` writes, a live picture in a notebook too.
    """

    def __init__(self, words: Sequence[str], quiet: bool) -> None:
        """`quiet` discards the standard output."""
        sys.stdout.flush()
        show = None if quiet else _notebook_display()
        has_terminal = sys.stdout is sys.__stdout__ and show is None
        out = subprocess.DEVNULL if quiet else None if has_terminal else subprocess.PIPE
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if has_terminal else subprocess.PIPE,
                text=True,
                errors="replace",
                env=_environment(theirs.fileno(), show is not None),
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C reaches this process alone, which passes it on
            )
        self._link = Connection(ours.detach())
        self._error: LabError | None = None
        self._is_asked = False
        self._relays = [
            threading.Thread(
                target=copy_context().run,  # a notebook knows by it below which cell to print
                args=(_relay, pipe, stream, show),
                daemon=True,
            )
            for pipe, stream in (
                (self._process.stdout, sys.stdout),
                (self._process.stderr, sys.stderr),
            )
            if pipe is not None
        ]
        for relay in self._relays:
            relay.start()

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.poll() is None

    def folder(self) -> Path:
        """Waits until the command has made or found its folder. Raises its error if it fails
        before."""
        try:
            while not self._link.poll(TICK):
                pass
            message = self._received()
        except BaseException:
            self.stop()
            raise
        if isinstance(message, Path):
            return message
        self._process.wait()
        self._finish(message)
        raise self._error or self._failure()

    def stop(self, at_once: bool = False) -> None:
        """Asks it to save and end, or to end without saving if it was asked before."""
        if self.is_running and (at_once or not self._is_asked):
            self._is_asked = True
            self._process.send_signal(signal.SIGINT)

    def wait(self, on_tick: Callable[[], None]) -> None:
        """Waits for the end, and calls `on_tick` a few times a second.

        After Ctrl-C it calls nothing more, and `stop`s the command; a second Ctrl-C ends it at
        once. Then it raises KeyboardInterrupt. Raises TrainingFailed if the command fails.
        """
        interrupted = False
        while self.is_running:
            try:
                if not interrupted:
                    on_tick()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(TICK)
            except KeyboardInterrupt:
                self.stop(at_once=interrupted)
                interrupted = True
        if not self._link.closed:
            self._finish(self._received() if self._link.poll() else None)
        if interrupted:
            raise KeyboardInterrupt
        if self._error is not None:
            raise self._error
        if self._process.returncode not in (0, STOPPED):
            raise self._failure()

    def _received(self) -> Any:
        """The next message; None if there will be none."""
        with suppress(EOFError, OSError):
            return self._link.recv()
        return None

    def _finish(self, message: Any) -> None:
        """After the command has ended; `message` is its last one."""
        deadline = time.monotonic() + RELAY_SECONDS
        for relay in self._relays:
            relay.join(max(deadline - time.monotonic(), 0.0))
        self._error = message if isinstance(message, LabError) else None
        self._link.close()

    def _failure(self) -> LabError:
        code = self._process.returncode
        if code == REFUSED:
            return UsageError("slm-lab refuses an argument; its message is above")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return TrainingFailed(f"slm-lab {how}; its messages are above")


REFUSED, STOPPED = 2, 130
"""The exit codes of a command with a wrong option, and of one that was asked to stop."""


def _environment(descriptor: int, with_pictures: bool) -> dict[str, str]:
    """That of this process; the command finds the same modules."""
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
    pictures = {PICTURES: "1", "COLUMNS": "100"} if with_pictures else {}
    return {**os.environ, "PYTHONPATH": path, SOCKET: str(descriptor), **pictures}


def _relay(pipe: IO[str], stream: TextIO, show: Callable[[str], None] | None) -> None:
    """Prints a command's output, and shows its pictures, to the end."""
    with pipe:
        for line in pipe:
            with suppress(Exception):  # the stream may be closed; the command must not wait for it
                if show is not None and line.startswith("\f"):
                    show(line[1:].rstrip("\n").replace("\v", "\n"))
                else:
                    stream.write(line)
                    stream.flush()


def _notebook_display() -> Callable[[str], None] | None:
    """Shows a text below the running cell, in place of the one before; None outside a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    if not hasattr(get_ipython(), "kernel"):
        return None
    name = f"slm_lab_{uuid.uuid4().hex}"
    shown: list[str] = []

    def show(text: str) -> None:
        about: dict[str, Any] = {"raw": True, "display_id": name, "update": bool(shown)}
        display({"text/plain": text}, **about)  # type: ignore[no-untyped-call]
        shown[:] = [text]

    return show
