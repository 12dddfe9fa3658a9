"""Starts processes that train: by a fork server on Linux, elsewhere by spawning each.

The fork server imports torch once, for all of them, while the command that started it still reads
its spec. It has no threads, so that a fork copies no lock that is held.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from slm_lab.core.process import kill_with_children, stop_signals_blocked
from slm_lab.parallel.wait import wait_until

FORKS = sys.platform == "linux"
CONTEXT: ForkServerContext | SpawnContext = (
    multiprocessing.get_context("forkserver") if FORKS else multiprocessing.get_context("spawn")
)
PRELOADED = ["slm_lab.core.dies_with_parent", "slm_lab.parallel.preloaded"]
"""The modules that the fork server imports."""


DYING_SECONDS = 10.0
"""How long a fork server that was killed may take to be gone."""


def start_fork_server() -> None:
    """Starts the fork server, if there is one here and it does not run yet."""
    resource_tracker.ensure_running()  # the first start would launch it and clear the mask
    # NumPy reads it at its import. `meta.threads` is torch's; small products need one thread.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if FORKS:
        forkserver.set_forkserver_preload(PRELOADED)
        with stop_signals_blocked():
            forkserver.ensure_running()


def new_process(target: Callable[..., None], args: Sequence[Any], name: str) -> BaseProcess:
    """A process that will call `target(*args)`, with this process's environment variables."""
    every = dict(os.environ), target, args
    process: BaseProcess = CONTEXT.Process(target=_in_environment, args=every, name=name)
    return process


def _in_environment(
    environ: Mapping[str, str], target: Callable[..., None], args: Sequence[Any]
) -> None:
    """The variables of the fork server may be older."""
    os.environ.clear()
    os.environ.update(environ)
    target(*args)


def start(process: BaseProcess) -> None:
    """Starts a process with stop signals blocked until it calls `unblock_stop_signals`. It inherits
    the mask; otherwise Ctrl-C would end it with a traceback while it still imports. Raises OSError
    at a limit of the system."""

    def has_started() -> bool:
        try:
            process.start()
        except (EOFError, ConnectionError):  # the server was killed; the next attempt replaces it
            return False
        return True

    start_fork_server()
    with stop_signals_blocked():
        if not wait_until(has_started, DYING_SECONDS, nap=0.05):
            raise ConnectionError("the fork server does not answer")


def end(process: BaseProcess) -> None:
    """Kills a process, if it was started and still runs."""
    if process.pid is not None:
        kill_with_children(process)
        process.join()
