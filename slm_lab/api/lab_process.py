"""A command of the lab in its own process, started from Python, and what it works
on."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from itertools import chain, repeat
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any, Self, TextIO, TypeAlias, final

from typing_extensions import override

from slm_lab.core.errors import LabError, TrainingFailed, UsageError, undone_on_failure
from slm_lab.core.process import HAS_CALLER, IMPORTED_BY_PARENT, PICTURES, SOCKET
from slm_lab.records.run_source import RunSource
from slm_lab.studies.ab.plan import AbRequest
from slm_lab.studies.compare.modes import CompareRequest
from slm_lab.trackers.callbacks import Callbacks

CommandRequest: TypeAlias = RunSource | CompareRequest | AbRequest
"""The options of a command that Python starts."""
MAIN = (
    "import sys; sys.argv = ['slm_lab.{verb}']; sys.path += {last}; "
    "from slm_lab.__main__ import run_for_caller; run_for_caller()"
)
"""The code that the process runs. Unlike a file or a module, Sessions do not import it
again."""
RELAY_SECONDS = 5.0
"""How long the rest of the output may take after the process has ended."""
REFUSED = 2
STOPPED = 130
"""The exit codes of a command with a wrong option, and of one that was asked to
stop."""


@final
class LabProcess:
    """A command of the lab in its own process, which gets a record of its options.

    So Sessions are watched, and Ctrl-C saves them, whatever this program does. It may
    be a script without a `__main__` guard, a notebook or a test. If this program ends,
    the process saves and stops. Its output appears where `print` writes, a live picture
    in a notebook too."""

    def __init__(
        self,
        verb: str,
        request: CommandRequest,
        quiet: bool,
    ) -> None:
        """Starts what `slm_lab.train` or a function beside it does, by `verb`; `folder`
        sends it the `request`. `quiet` discards the standard output."""
        sys.stdout.flush()
        shows = None
        if not quiet:
            shows = _notebook_display()
        has_terminal = sys.stdout is sys.__stdout__ and shows is None
        errors = None if has_terminal else subprocess.PIPE
        output = errors
        if quiet:
            output = subprocess.DEVNULL
        self._link, theirs = Pipe()
        first, last = _module_path()
        pictures = {}
        if shows is not None:
            pictures = {PICTURES: "1", "COLUMNS": "100"}
        inherited = dict(os.environ)
        inherited.pop(IMPORTED_BY_PARENT, None)  # another thread may be importing
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", MAIN.format(verb=verb, last=last)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                text=True,
                errors="replace",
                env={
                    **inherited,
                    "PYTHONPATH": os.pathsep.join(first),
                    SOCKET: str(theirs.fileno()),
                    HAS_CALLER: "1",
                    **pictures,
                },
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches this process alone, which passes it on
                process_group=0,
            )
        self._request = verb, request
        self._error: LabError | None = None
        self._is_asked = False
        pipes = (
            (self._process.stdout, sys.stdout),
            (self._process.stderr, sys.stderr),
        )
        self._relays = [
            start_thread(_relay, pipe, stream, shows)
            for pipe, stream in pipes
            if pipe is not None
        ]

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def folder(self) -> Path:
        """Waits until the command has made or found its folder. Raises its error if it
        fails before."""
        with undone_on_failure(self.stop):
            with suppress(OSError):  # it has ended
                self._link.send(self._request)
            message = self._received()
        if isinstance(message, Path):
            return message
        self._error = message
        self.check()
        raise TrainingFailed("slm-lab was stopped before it began")

    def stop(self, at_once: bool = False) -> None:
        """Requests a checkpoint and the end; a second call ends it without saving."""
        if self.is_running and (at_once or not self._is_asked):
            self._is_asked = True
            self._process.send_signal(signal.SIGINT)

    def join(self, seconds: float | None = None) -> None:
        """Waits for its end, at most `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def check(self) -> None:
        """Waits for its end and its last output. Raises its error if it failed."""
        self.join()
        for relay in self._relays:
            relay.join(RELAY_SECONDS)
        if self._link.poll():
            self._error = self._received() or self._error
        code = self._process.returncode
        if self._error is not None:
            raise self._error
        if code == REFUSED:
            raise UsageError("slm-lab refuses an argument; its message is above")
        if code not in (0, STOPPED):
            reason = (
                f"was killed by signal {-code}"
                if code < 0
                else f"ended with exit code {code}"
            )
            raise TrainingFailed(f"slm-lab {reason}; its messages are above")

    def _received(self) -> Any:
        with suppress(EOFError, OSError):
            return self._link.recv()
        return None


def _module_path() -> tuple[list[str], list[str]]:
    """The module path of this program, and the part that comes last: the working
    directory. A file that lies there must not replace a module of an installed
    package."""
    here = os.path.realpath(os.curdir)
    every = [os.path.abspath(entry) for entry in sys.path]
    elsewhere = [entry for entry in every if os.path.realpath(entry) != here]
    return elsewhere, [here] if len(elsewhere) < len(every) else []


def start_thread(work: Callable[..., None], *arguments: object) -> threading.Thread:
    """A started thread that does `work`. It prints below the same cell of a
    notebook."""
    run_here = copy_context().run
    thread = threading.Thread(target=run_here, args=(work, *arguments), daemon=True)
    thread.start()
    return thread


def _relay(
    pipe: IO[str], stream: TextIO, shows: Iterator[Callable[..., Any]] | None
) -> None:
    with pipe:
        for line in pipe:
            # the stream may be closed; the command must not wait for it
            with suppress(Exception):
                if shows is not None and line.startswith("\f"):
                    picture = line[1:].rstrip("\n").replace("\v", "\n")
                    next(shows)({"text/plain": picture}, raw=True)
                else:
                    stream.write(line)
                    stream.flush()


def _notebook_display() -> Iterator[Callable[..., Any]] | None:
    """Functions that show a picture below the running cell: the first shows it, all
    others replace it. None outside a notebook."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import DisplayHandle

    if get_ipython() is None:
        return None
    handle = DisplayHandle()  # type: ignore[no-untyped-call]
    return chain([handle.display], repeat(handle.update))


TICK = 0.25
"""Seconds between two looks at what was written."""


class Handle:
    """A run, search, comparison or test that this program has started, or found in its
    folder."""

    def __init__(
        self,
        folder: Path,
        process: LabProcess | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.folder = folder
        self.source = str(folder)
        """The name by which `slm_lab.load` finds it: the folder, FOLDER:t3, or the file
        of a shared run."""
        self._process = process
        self._callbacks = callbacks or Callbacks()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether this program has started it, and it has not ended."""
        return self._process is not None and self._process.is_running

    def stop(self) -> None:
        """Requests a checkpoint and the end; returns at once. It can be resumed."""
        if self._process is not None:
            self._process.stop()

    def followed(self, wait: bool) -> Self:
        """Itself, followed to its end: in this thread, raising as `wait`, or in another
        thread."""
        if wait:
            self.wait()
        else:
            self._thread = start_thread(self._watch)
        return self

    def wait(self) -> None:
        """Waits for its end, and for its callbacks; a callback may wait for the end
        alone.

        Ctrl-C makes it save and end, a second one ends it at once; then
        KeyboardInterrupt is raised. Raises TrainingFailed, with the reasons, if it
        fails."""
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
        """Its `source`, so that it can be given where a run or a folder is asked
        for."""
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
