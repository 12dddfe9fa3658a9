"""What Ctrl-C and SIGTERM do to a process that watches trainings."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from slm_lab.experiment.worker import STOP_SIGNALS


@contextmanager
def stop_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """The first signal calls `ask`, which has the trainings save and end; a second one ends at
    once."""
    asked = False  # not a flag of theirs: a Session that got the same signal may have set it

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            for each in STOP_SIGNALS:  # a third one must not interrupt the clearing up
                signal.signal(each, signal.SIG_IGN)
            raise KeyboardInterrupt
        asked = True
        ask()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
