"""Settings of a training's process: signals, memory, parent, CPU cores."""

import atexit
import ctypes
import fcntl
import gc
import importlib.util
import logging
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import resource_tracker, util
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, final

from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.files import open_own

COUNTERS = Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")
"""The files in which Linux counts processes that it killed for memory: in this
container, or in all."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the end of a process, and a closed terminal."""
ONE_SIGNAL = 0.5
"""Seconds within which two signals count as one."""
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
"""The signals that end a process whose compiled code fails."""
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGE = 32 << 20
"""Bytes; the largest mmap threshold that glibc allows."""
KEPT = 256 << 20
"""Unused bytes that may remain at the end of the heap."""
PR_SET_PDEATHSIG = 1


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Delays these signals: libraries mistake an interrupted import for a broken one. A
    process started in this context inherits the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def safe_path() -> Iterator[None]:
    """Keeps the working directory off the module path of the interpreters started
    meanwhile. A file that lies there, maybe downloaded, must not replace a module of
    Python or of a package."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def main_module_hidden() -> Iterator[None]:
    """Hides the main module from multiprocessing. Every process that multiprocessing
    starts meanwhile would import it again. A script without a guard would run in each,
    and the command line takes a quarter of a second."""
    main = sys.modules["__main__"]
    attributes = {
        name: value
        for name, value in vars(main).items()
        if name in ("__spec__", "__file__")
    }
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        main.__dict__.update(attributes)


def start_resource_tracker() -> None:
    """Starts multiprocessing's tracker, which frees the semaphores of killed processes.
    It does not warn of them. It ignores all stop signals but SIGHUP, and its start
    clears the mask."""
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # it inherits them
    with stop_signals_blocked(), safe_path():
        resource_tracker.ensure_running()
    sys.warnoptions.pop()


OURS = "slm_lab"
"""A file in the temporary folder of a process of the lab, which is locked while that
lives."""


def claim_temporary_folder() -> None:
    """Marks and locks multiprocessing's folder for the sockets of this process's fork
    server. Such folders of the lab's processes that were killed are removed."""
    folder = Path(util.get_temp_dir())
    if (folder / OURS).exists():
        return
    for mark in Path(tempfile.gettempdir()).glob(f"pymp-*/{OURS}"):
        with suppress(OSError):  # it is locked, or another user's
            descriptor = _locked(mark.parent)
            shutil.rmtree(mark.parent, ignore_errors=True)
            os.close(descriptor)
    with suppress(OSError):
        _locked(folder)  # until this process ends
        (folder / OURS).touch()


def _locked(folder: Path) -> int:
    """A descriptor of the folder, which holds its lock. Raises OSError if it cannot be
    locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def seed_global_generators(seed: int, *branch: int) -> None:
    """Seeds the global generators of Python, NumPy and torch in a process of the lab,
    from a branch of `seed`. Some environments draw from them; the lab does not."""
    import numpy as np

    words = np.random.SeedSequence(seed, spawn_key=branch).generate_state(12)
    random.seed(words[:4].tobytes())
    np.random.seed(words[4:8])  # noqa: NPY002
    *of_torch, position = (int(word) for word in words[8:11])
    seeding = _TorchSeeding(of_torch[0] + (of_torch[1] << 32), position % _POSITIONS)
    if "torch" in sys.modules:
        seeding.apply(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, seeding)


_POSITIONS = 2**16


@final
class _TorchSeeding(MetaPathFinder):
    """Seeds torch's global generators, on import if torch is imported later. An
    environment may need torch, though the worker that steps it does not. On a CPU torch
    uses only 32 bits of a seed; the `position` in the stream adds 16."""

    def __init__(self, seed: int, position: int) -> None:
        self._seed = seed
        self._position = position

    def apply(self, torch: Any) -> None:
        """Seeds the generators of the module `torch`."""
        # torch.manual_seed would import a compiler
        torch.default_generator.manual_seed(self._seed)
        torch.cuda.manual_seed_all(self._seed)
        torch.randint(2, (self._position,))

    @override
    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                self.apply(module)

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec


@contextmanager
def global_generators_seeded(seed: int) -> Iterator[None]:
    """`seed_global_generators` for a while, in a process that imports torch."""
    import numpy as np

    torch: Any = importlib.import_module("torch")
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    seed_global_generators(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def kill_descendants(spared: Collection[int | None] = ()) -> None:
    """Kills what this process has started, such as simulators, except `spared`. It is
    for a normal end, as `kill_with_children` is for any other (Linux)."""
    for pid in {*_descendants(os.getpid())}.difference(spared):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def children_killed() -> Iterator[None]:
    """Kills at the end what was started meanwhile, see `kill_descendants`. It spares
    what has a terminal's session of its own, such as a browser, and multiprocessing's
    tracker of resources."""
    before = {*_descendants(os.getpid())}
    try:
        yield
    finally:
        tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
        kill_descendants(spared={*before, tracker, *_pids_of_other_sessions()})


def _pids_of_other_sessions() -> Iterator[int]:
    session = os.getsid(0)
    for pid in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            if os.getsid(pid) != session:
                yield pid


def exit_reason(code: int) -> str:
    """Why a process of environments ended without an answer, for the end of a message.
    "" if its exit code does not tell."""
    if code == 1:  # as Python ends after an exception
        return ": the error above, or its environment or a library called os._exit"
    if code >= 0:
        return ": its environment or a library called os._exit"
    if -code in CRASHES:
        return ": compiled code, such as a simulator's, has crashed"
    return ""


def memory_kills() -> int:
    """How many processes Linux has killed for memory since its start; 0 where it does
    not count."""
    for counter in COUNTERS:
        with suppress(OSError):
            match = re.search(r"^oom_kill (\d+)", counter.read_text(), re.MULTILINE)
            if match:
                return int(match[1])
    return 0


def waits_for_disk(pid: int | None) -> bool:
    """Whether a process is in uninterruptible I/O, where even SIGKILL has no effect
    (Linux)."""
    with suppress(OSError):
        # The state follows the name, which is in brackets and may contain anything.
        status = Path(f"/proc/{pid}/stat").read_text()
        return status.rpartition(") ")[2].startswith("D")
    return False


def kill_with_children(process: BaseProcess) -> None:
    """Kills a process that was started, and on Linux what it has started, such as
    simulators."""
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
def signals_handled(handler: Any) -> Iterator[None]:
    """Handles STOP_SIGNALS by `handler` of `signal.signal`. An ignored SIGHUP stays so:
    `nohup`."""
    numbers = set(STOP_SIGNALS)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def stop_on_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """The first signal calls `request_stop`, which makes the trainings save and end. A
    second one raises KeyboardInterrupt, unless it comes at once: `timeout` sends
    two."""
    # not the flag of the status board: a Session that got the same signal may have
    # set it
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not first:
            first = time.monotonic()
            request_stop()
        elif time.monotonic() - first > ONE_SIGNAL:
            # a third signal must not interrupt the cleanup
            for stop_signal in STOP_SIGNALS:
                signal.signal(stop_signal, signal.SIG_IGN)
            raise KeyboardInterrupt

    with signals_handled(handle):
        yield


def ignore_terminal() -> None:
    """Removes the signal mask, and ignores what a terminal sends to a parent and its
    children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def keep_freed_memory() -> None:
    """Lets the process keep up to KEPT bytes of freed memory, if the C library is
    glibc. By default glibc returns blocks above 128 KiB to the system at once, and new
    ones must be zeroed again. Convolutions free and allocate tens of megabytes in every
    minibatch."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, KEPT)


IMPORTED_BY = os.getpid()
"""The process that imported this module; in a process that a fork server forked, the
server."""


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies for any reason (Linux). If
    the actual parent is not `parent` (of a forked process its fork server), it has died
    already. The kernel watches the thread that started the process, so that should be
    the main thread."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getpid() != IMPORTED_BY:
        parent = IMPORTED_BY
    elif (
        starter := multiprocessing.parent_process()
    ) is not None and starter.is_alive():
        parent = os.getppid()  # of a fork server that has not imported this module
    if os.getppid() != parent:
        os._exit(1)


LOG_LEVEL = "SLM_LAB_LOG_LEVEL"
"""The environment variable with the level of the Sessions' logs."""
SOCKET = "SLM_LAB_CALLER"
PICTURES = "SLM_LAB_PICTURES"
"""The environment variables that a calling program sets. They hold the file descriptor
of its socket, and whether its notebook shows live pictures."""
IMPORTED_BY_PARENT = "SLM_LAB_IMPORTED_CODE"
"""The environment variable with the module that a parent is importing, while it
does."""
INHERITED_IMPORT = os.environ.get(IMPORTED_BY_PARENT)
HAS_CALLER = "SLM_LAB_HAS_CALLER"
"""The environment variable of processes that a program started, as `slm_lab.train`
does, and of all that these start."""
IMPORTED_HERE: ContextVar[str | None] = ContextVar("imported code", default=None)
"""The module that this thread is importing: other threads may train meanwhile."""


@contextmanager
def running_import_of(module: str) -> Iterator[None]:
    """Marks this thread, and what is started meanwhile, as importing a module of the
    user."""
    before = IMPORTED_HERE.set(module)
    marks_children = IMPORTED_BY_PARENT not in os.environ
    if marks_children:
        os.environ[IMPORTED_BY_PARENT] = module
    try:
        yield
    finally:
        IMPORTED_HERE.reset(before)
        if marks_children:
            os.environ.pop(IMPORTED_BY_PARENT, None)


def imported_code() -> str | None:
    """The user's module that is being imported: here, by a parent, or as the main
    module of a process of multiprocessing. None outside an import. In a process that
    `slm_lab.train` started every thread belongs to the import."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        return "the main script"
    module = IMPORTED_HERE.get() or INHERITED_IMPORT
    if module is None and HAS_CALLER in os.environ:
        module = os.environ.get(IMPORTED_BY_PARENT)
    return module


def usable_cores() -> int:
    """Cores that this process may use; all of the machine if the system does not report
    it."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS and Windows have none
    if affinity is not None:
        return len(affinity(0))
    return os.cpu_count() or 1


@contextmanager
def importing() -> Iterator[None]:
    """Disables garbage collection during imports, which create no garbage. This
    shortens torch's import by a fifth. Imported objects stay frozen until the process
    ends. Then they are unfrozen, because nanobind reports remaining objects as
    leaks."""
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
    files = [
        handler.baseFilename
        for handler in handlers
        if isinstance(handler, logging.FileHandler)
    ]
    if files:
        return Path(files[0])
    return None


@contextmanager
def printing_to(file: Path | None) -> Iterator[None]:
    """Appends to `file` what is printed within, by C libraries too: they would tear the
    display of another process. None: prints as usual. No other thread should print
    meanwhile."""
    if file is None:
        yield
        return
    saved_files: list[tuple[int, int]] = []
    _flush_streams()
    with suppress(OSError, LabError):
        log = open_own(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            saved_files.append((descriptor, os.dup(descriptor)))
            os.dup2(log, descriptor)
        os.close(log)
    try:
        yield
    finally:
        _flush_streams()
        for descriptor, before in saved_files:
            os.dup2(before, descriptor)
            os.close(before)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # a closed pipe, a full disk, a closed stream
            with suppress(OSError, ValueError):
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
