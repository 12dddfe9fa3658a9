"""How a command reacts to Ctrl-C, SIGTERM and a closed terminal."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from slm_lab.cli.display.output import SafeStream
from slm_lab.core.process import STOP_SIGNALS, signals_handled, stop_signals_blocked

CLEAR_UP_SECONDS = 4.0
"""Time limit for a command to clean up after a signal, in seconds."""


@contextmanager
def stopped_like_ctrl_c() -> Iterator[list[int]]:
    """Makes Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt. Yields the
    list of the signals so far: a library may turn an interrupted import into another
    error."""
    numbers: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        raise KeyboardInterrupt

    with signals_handled(interrupt):
        yield numbers


def print_stop(folder: Path | None) -> None:
    """Prints the document of a command that was stopped before it had its own, if the
    user wants one. `folder` is the run folder, if there is one."""
    stream: object = sys.stdout
    if isinstance(stream, SafeStream) and stream.awaits_document:
        place = None
        if folder is not None:
            place = str(folder)
        document = {"status": "stopped", "folder": place, "exit_code": 130}
        stream.write_document(f"{json.dumps(document)}\n")


@contextmanager
def ended_in_time(say: Callable[[], None]) -> Iterator[None]:
    """Ends the process, with exit code 130, if it still runs long after a signal.
    Python handles signals only between its own instructions, but C code of an
    environment may take minutes. `say` is called before the end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] in STOP_SIGNALS and not over.wait(CLEAR_UP_SECONDS):
                with suppress(OSError):  # the terminal is closed
                    os.write(2, b"stopped\n")
                say()
                os._exit(130)

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # inherited by the watcher, so the main thread gets the signals
    with stop_signals_blocked():
        watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
