"""Settings of a training's process: signals, memory, parent, CPU cores."""

import atexit
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from slm_lab.core.errors import LabError
from slm_lab.core.files import open_own

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the end of a process, and a closed terminal."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE = 32 << 20
"""Bytes; the largest mmap threshold that glibc allows."""
KEPT = 256 << 20
"""Unused bytes that may remain at the end of the heap."""
PR_SET_PDEATHSIG = 1


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Delays these signals: libraries mistake an interrupted import for a broken one. A process
    started in this context inherits the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_resource_tracker() -> None:
    """Starts multiprocessing's tracker, which frees the semaphores of killed processes. It does not
    warn of them. It ignores all stop signals but SIGHUP, and its start clears the mask."""
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # it inherits them
    with stop_signals_blocked():
        resource_tracker.ensure_running()
    sys.warnoptions.pop()


def kill_with_children(process: BaseProcess) -> None:
    """Kills a process that was started, and on Linux what it has started, such as simulators."""
    below = [*_descendants(process.pid)] if process.is_alive() else []
    process.kill()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int | None) -> Iterator[int]:
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _descendants(child)


@contextmanager
def signals_handled(handler: Any, numbers: Sequence[int] = STOP_SIGNALS) -> Iterator[None]:
    """Handles the signals by `handler` of `signal.signal`. An ignored SIGHUP stays so: `nohup`."""
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [number for number in numbers if not (is_kept and number == signal.SIGHUP)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, each in before.items():
            signal.signal(number, each)


def ignore_terminal() -> None:
    """Removes the signal mask, and ignores what a terminal sends to a parent and its children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def keep_freed_memory() -> None:
    """Lets the process keep up to KEPT bytes of freed memory, if the C library is glibc. By default
    glibc returns blocks above 128 KiB to the system at once, and new ones must be zeroed again:
    convolutions free and allocate tens of megabytes in every minibatch."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, KEPT)


IMPORTED_BY = os.getpid()
"""The process that imported this module; in a process that a fork server forked, the server."""


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies for any reason (Linux). If the actual
    parent is not `parent` (of a forked process its fork server), it has died already. The kernel
    watches the thread that started the process, so that should be the main thread."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getpid() != IMPORTED_BY:
        parent = IMPORTED_BY
    elif (starter := multiprocessing.parent_process()) is not None and starter.is_alive():
        parent = os.getppid()  # of a fork server that has not imported this module
    if os.getppid() != parent:
        os._exit(1)


LOG_LEVEL = "SLM_LAB_LOG_LEVEL"
"""The environment variable with the level of the Sessions' logs."""
SOCKET, PICTURES = "SLM_LAB_CALLER", "SLM_LAB_PICTURES"
"""Those that a calling program sets: the file descriptor of the socket to it; and, for a notebook,
that it shows live pictures."""


def usable_cores() -> int:
    """Cores that this process may use; all of the machine if the system does not report it."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS and Windows have none
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def importing() -> Iterator[None]:
    """Disables garbage collection during imports, which create no garbage. This shortens torch's
    import by a fifth. Imported objects stay frozen until the process ends. Then they are unfrozen,
    because nanobind reports remaining objects as leaks."""
    atexit.unregister(gc.unfreeze)  # registered once, however often this runs
    atexit.register(gc.unfreeze)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def text_log() -> Path | None:
    """The file of this process's text log; None if it has none."""
    handlers = logging.getLogger("slm_lab").handlers
    files = [each.baseFilename for each in handlers if isinstance(each, logging.FileHandler)]
    return Path(files[0]) if files else None


@contextmanager
def printing_to(file: Path | None) -> Iterator[None]:
    """Appends to `file` what is printed within, by C libraries too: they would tear the display of
    another process. None: prints as usual. No other thread should print meanwhile."""
    if file is None:
        yield
        return
    kept: list[tuple[int, int]] = []
    _flush_streams()
    with suppress(OSError, LabError):
        log = open_own(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            kept.append((descriptor, os.dup(descriptor)))
            os.dup2(log, descriptor)
        os.close(log)
    try:
        yield
    finally:
        _flush_streams()
        for descriptor, before in kept:
            os.dup2(before, descriptor)
            os.close(before)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # a closed pipe, a full disk, a closed stream
                stream.flush()


@contextmanager
def quietly(*loggers: str) -> Iterator[None]:
    """Silences warnings, and all but the errors of the loggers of these names."""
    before = {logger: logger.level for logger in map(logging.getLogger, loggers)}
    for logger in before:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
