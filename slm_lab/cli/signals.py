"""What Ctrl-C and SIGTERM do to a command while it trains nothing: it clears up and ends."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CLEAR_UP_SECONDS = 4.0
"""How long a command may take to clear up after a signal."""


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Lets them wait till the end: libraries take an interrupted import for a broken one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Has SIGTERM raise KeyboardInterrupt, so that environments and their processes are closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ended_in_time(seconds: float = CLEAR_UP_SECONDS) -> Iterator[None]:
    """Ends the process with the exit code of a Ctrl-C where it still runs that long after a signal.

    Python takes heed of signals between its own instructions only: a step of an environment in C
    may take minutes, and so may its end.
    """
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
    with signals_held_back():  # which the watcher inherits: signals are for the main thread
        watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
