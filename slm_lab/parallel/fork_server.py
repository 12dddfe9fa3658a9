"""Starts processes that train: by a fork server on Linux, elsewhere by spawning each.

The fork server imports torch once, for all of them, while the command that started it
still reads its spec. It has no threads, so that a fork copies no lock that is held."""

import atexit
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from slm_lab.core.process import (
    claim_temporary_folder,
    kill_with_children,
    safe_path,
    start_resource_tracker,
    stop_signals_blocked,
    waits_for_disk,
)

SOCKET_FOLDER = 70
"""Most bytes in the path of the temporary folder: the server's socket lies there."""
DISK_SECONDS = 1.0
"""How long a killed process may wait for a disk before it is left."""
FORKS = (
    sys.platform == "linux" and len(os.fsencode(tempfile.gettempdir())) <= SOCKET_FOLDER
)
CONTEXT: ForkServerContext | SpawnContext = (
    multiprocessing.get_context("forkserver")
    if FORKS
    else multiprocessing.get_context("spawn")
)
PRELOADED = ["slm_lab.core.dies_with_parent", "slm_lab.parallel.preloaded"]
"""The modules that the fork server imports."""


def start_fork_server() -> None:
    """Starts the fork server, if there is one here and it does not run yet. It imports
    what this process would: `python -c` looks into the working folder first. Raises
    OSError at a limit of the system."""
    # NumPy reads it at its import. `meta.threads` is torch's; small products need one
    # thread.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before = dict(os.environ)
    try:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        start_resource_tracker()
        if FORKS:
            forkserver.set_forkserver_preload(PRELOADED)
            claim_temporary_folder()
            with stop_signals_blocked(), safe_path():
                forkserver.ensure_running()
    finally:
        _set_environment(before)


def new_process(
    target: Callable[..., None], args: Sequence[Any], name: str
) -> BaseProcess:
    """A process that will call `target(*args)`, with this process's environment
    variables."""
    every = dict(os.environ), target, args
    process: BaseProcess = CONTEXT.Process(
        target=_run_in_environment, args=every, name=name
    )
    return process


def _run_in_environment(
    environ: Mapping[str, str], target: Callable[..., None], args: Sequence[Any]
) -> None:
    """Calls the target with what a fresh interpreter would have: these variables,
    entropy, and functions at its exit."""
    import numpy as np

    _set_environment(environ)
    np.random.seed()  # noqa: NPY002 - Sessions replace it, see `seed_global_generators`
    # The loss is checked, and its message names what is beyond float32.
    warnings.filterwarnings(
        "ignore", "overflow encountered in cast", RuntimeWarning, "slm_lab"
    )
    try:
        target(*args)
    finally:
        atexit._run_exitfuncs()


def _set_environment(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


def start(process: BaseProcess) -> None:
    """Starts a process with stop signals blocked until it calls `ignore_terminal`.
    Otherwise Ctrl-C would end its imports with a traceback. Raises OSError at a limit
    of the system."""
    start_fork_server()
    with stop_signals_blocked(), safe_path():
        try:
            process.start()
        except EOFError as error:
            raise ConnectionError("the fork server was killed") from error


def end(process: BaseProcess) -> None:
    """Kills a process, if it was started and still runs, and waits until it is gone.
    A process that waits for a disk is left alone. It ends when the disk answers, and
    this process does not wait for it at its end."""
    if process.pid is None:
        return
    kill_with_children(process)
    process.join(DISK_SECONDS)
    while process.is_alive():
        if waits_for_disk(process.pid):
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
            return
        process.join(DISK_SECONDS)
