"""Handles Ctrl-C and SIGTERM in a process that watches trainings."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from slm_lab.core.process import STOP_SIGNALS, signals_handled


@contextmanager
def stop_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """The first signal calls `ask`, which makes the trainings save and end. A second signal raises
    KeyboardInterrupt."""
    received = False  # not the board's flag: a Session that got the same signal may have set it

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            for each in STOP_SIGNALS:  # a third signal must not interrupt the cleanup
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        received = True
        ask()

    with signals_handled(handle):
        yield
