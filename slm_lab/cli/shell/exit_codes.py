"""What surrounds a command: the program or script that calls it, signals, its errors and its exit
code.
"""

import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import NoReturn, final

import typer

from slm_lab import __version__
from slm_lab.cli.display.output import guarded_output
from slm_lab.core.errors import LabError, MissingExtraError, SpecError, TrainingFailed, UsageError
from slm_lab.core.process import (
    LOG_LEVEL,
    SOCKET,
    STOP_SIGNALS,
    signals_handled,
    stop_signals_blocked,
)
from slm_lab.core.system_limits import limit_reached
from slm_lab.core.text import error_summary

TIMEOUT = 60.0
"""Seconds after which the user's command is killed, with all that it started."""


def set_log_level(level: str | None) -> None:
    """Sets the level of the lab's logs, in this process and in those that it starts."""
    if level is not None:
        os.environ[LOG_LEVEL] = level.upper()
        logging.getLogger("slm_lab").setLevel(level.upper())


def notify_of(command: str | None, folder: Path | None, code: int) -> None:
    """Runs the user's command. What goes wrong with it is printed, and changes nothing."""
    if command is None:
        return
    about = {"SLM_LAB_RUN": str(folder or ""), "SLM_LAB_EXIT_CODE": str(code)}
    env, errors = {**os.environ, **about}, sys.__stderr__  # the standard output may be a document
    child = subprocess.Popen(command, shell=True, env=env, stdout=errors, start_new_session=True)
    try:
        ended = child.wait(TIMEOUT)
        why = f"ended with {ended}" if ended else ""
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(child.pid, signal.SIGKILL)  # what it has started, too
        child.wait()
        is_late = isinstance(error, subprocess.TimeoutExpired)
        why = f"did not end in {TIMEOUT:g} s, and was killed" if is_late else "was killed by Ctrl-C"
    if why:
        print(f"--notify: {command!r} {why}", file=sys.stderr)


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


FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
BAD_INPUTS = (SpecError, UsageError, MissingExtraError)


@contextmanager
def report_errors(notify: str | None = None) -> Iterator[Caller]:
    """Prints an error that the user can act on as one message, and exits with its code. A calling
    program gets the error instead. However the command ends, the user's command
    `notify` is run then."""
    caller, code = Caller(), 0
    try:
        yield caller
    except typer.Exit as ended:
        code = ended.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
        print("stopped", file=sys.stderr)
    except Exception as error:
        code = BAD_INPUT if isinstance(error, BAD_INPUTS) else FAILED
        if not isinstance(error, LabError):
            error = TrainingFailed(_system_message(error) or _unexpected(error))
        if caller.exists:
            caller.send(error)
        else:
            print(error, file=sys.stderr)
    notify_of(notify, caller.folder, code)
    if code:
        raise typer.Exit(code)


def run_guarded(app: Callable[[], object]) -> NoReturn:
    """Runs the command line, and exits with its code. If the standard output fails, the command
    still runs to its end and exits with FAILED."""
    _spare_sessions_the_main_module()
    code: str | int | None = 0
    with guarded_output() as output_failure:
        try:
            app()
        except SystemExit as ended:
            code = ended.code
        finally:
            why = output_failure()
            if why is not None:
                message = f"standard output: {why}; printing stopped, the command itself finished"
                print(message, file=sys.stderr)
                code = code or FAILED
    sys.exit(code)


def _spare_sessions_the_main_module() -> None:
    """Hides the main module from multiprocessing. Every process that it starts would import it, and
    with it the command line, which takes a quarter of a second."""
    main = sys.modules["__main__"]
    main.__spec__ = None
    main.__dict__.pop("__file__", None)


def _system_message(error: Exception) -> str | None:
    """A line about a limit, a full disk or a missing permission; None for another error."""
    limit = limit_reached(error)
    if limit is not None:
        return limit
    if not isinstance(error, OSError) or error.errno not in NO_SPACE_OR_ACCESS:
        return None
    return f"{error.strerror}: {error.filename or 'while writing to the run folder'}"


def _unexpected(error: Exception) -> str:
    """A line about a bug of the lab, whose traceback goes to a file."""
    what = f"unexpected {type(error).__name__}: {error_summary(str(error))}"
    trace = "".join(traceback.format_exception(error))
    command = shlex.join(["slm-lab", *sys.argv[1:]])
    try:
        handle, path = tempfile.mkstemp(prefix="slm_lab_error_", suffix=".txt", text=True)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"slm-lab {__version__}\n{command}\n\n{trace}")
    except OSError:
        return f"{trace}{what}"
    return f"{what}\nthe traceback is in {path}; please report it, see CONTRIBUTING.md"


NO_SPACE_OR_ACCESS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)
"""Error numbers of a full disk, or of missing permission."""


CLEAR_UP_SECONDS = 4.0
"""Time limit for a command to clean up after a signal, in seconds."""


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, so that environments and processes are closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with signals_handled(interrupt, [signal.SIGTERM]):
        yield


@contextmanager
def ended_in_time(seconds: float = CLEAR_UP_SECONDS) -> Iterator[None]:
    """Ends the process, with exit code 130, if it still runs `seconds` after a signal: Python
    handles signals only between its own instructions, but C code of an environment may take
    minutes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] in STOP_SIGNALS and not over.wait(seconds):
                os.write(2, b"stopped\n")
                os._exit(130)

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    with stop_signals_blocked():  # inherited by the watcher, so the main thread gets the signals
        watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
