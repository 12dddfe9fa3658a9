"""Sessions in spawned processes on this machine."""

import multiprocessing
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import final

from slm_lab.core.process import stop_signals_blocked
from slm_lab.core.system_limits import limit_reached
from slm_lab.parallel.supervisor import Ended, Supervisor
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import session_main
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.result import SessionResult

EXIT_SECONDS = 10.0
"""How long a process that has sent its result may take to exit."""

SPAWN = multiprocessing.get_context("spawn")


def start(process: SpawnProcess) -> None:
    """Starts a process with stop signals blocked until it calls `unblock_stop_signals`.

    It inherits the mask; otherwise Ctrl-C would end it with a traceback while it still imports.
    """
    ensure_running()  # else the first start would launch the tracker, which clears the mask
    with stop_signals_blocked():
        process.start()


def end(process: SpawnProcess) -> None:
    """Kills a process, if it was started and still runs."""
    if process.pid is not None:
        process.kill()
        process.join()


@final
class Processes:
    """A `Runner` with one process for each Session."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._running: dict[int, tuple[SpawnProcess, Connection]] = {}

    @property
    def running(self) -> Collection[int]:
        """The Sessions that have a process now."""
        return self._running.keys()

    def start(self, task: SessionTask) -> Ended | None:
        """Starts a process; returns the limit of the system that prevents it, if any."""
        receiver, sender = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(
            target=session_main,
            args=(task, self._board.raw, sender, os.getpid()),
            name=f"session-{task.session}",
        )
        self._running[task.session] = (process, receiver)  # an interrupt here must not lose it
        try:
            start(process)
        except OSError as error:
            del self._running[task.session]
            receiver.close()
            why = f"its process could not be started: {limit_reached(error) or error}"
            return Ended(task.session, None, why)
        finally:
            sender.close()
        return None

    def ended(self, seconds: float) -> list[Ended]:
        """Waits up to `seconds` for a process to end; returns those that have ended since."""
        sentinels = [process.sentinel for process, _ in self._running.values()]
        pipes = [pipe for _, pipe in self._running.values()]
        wait([*sentinels, *pipes], seconds)
        ended = []
        for session, (process, pipe) in list(self._running.items()):
            if process.is_alive() and not pipe.poll():
                continue
            result = _receive(pipe)
            process.join(1.0 if self._board.user_waits else EXIT_SECONDS)
            end(process)  # in case it hangs after sending its result
            pipe.close()
            del self._running[session]
            ended.append(Ended(session, result, _cause(process.exitcode), process.exitcode))
        return ended

    def kill(self, session: int) -> None:
        """Kills the process of a Session; `ended` reports it later."""
        self._running[session][0].kill()

    def close(self) -> None:
        """Kills all processes."""
        for process, pipe in self._running.values():
            end(process)
            pipe.close()
        self._running.clear()

    def waits_for_disk(self, session: int) -> bool:
        """Whether its process is in uninterruptible I/O, where not even SIGKILL takes effect
        (Linux)."""
        if session not in self._running:
            return False
        with suppress(OSError):
            # The state follows the name, which is in brackets and may contain anything.
            status = Path(f"/proc/{self._running[session][0].pid}/stat").read_text()
            return status.rpartition(") ")[2].startswith("D")
        return False


def run_sessions(
    tasks: Sequence[SessionTask],
    board: StatusBoard,
    on_tick: Callable[[], None],
    max_parallel: int | None = None,
) -> list[SessionResult]:
    """Runs independent Sessions to their ends, at most `max_parallel` at a time."""
    return Supervisor(Processes(board), tasks, board, max_parallel=max_parallel).run(on_tick)


def _receive(pipe: Connection) -> SessionResult | None:
    """The result a process sent, or None if it died before sending one."""
    try:
        if pipe.poll():
            result: SessionResult = pipe.recv()
            return result
    except (EOFError, OSError):
        pass
    return None


def _cause(exit_code: int | None) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else "ended early"
    return f"the process {how} (exit code {exit_code})"
