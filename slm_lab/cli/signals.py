"""What Ctrl-C and SIGTERM do to a command while it trains nothing: it clears up and ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
