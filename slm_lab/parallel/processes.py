"""Sessions in processes on this machine."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.core.errors import limit_reached, undone_on_failure
from slm_lab.core.process import (
    exit_reason,
    kill_with_children,
    memory_kills,
    waits_for_disk,
)
from slm_lab.parallel.fork_server import CONTEXT, end, new_process, start
from slm_lab.parallel.hang_detector import session_due
from slm_lab.parallel.supervisor import Runner, SessionEnd, Supervisor
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import note_in_log, session_main
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.result import SessionResult

LOST_SERVER = "process lost its fork server (exit code 255)"
OUT_OF_MEMORY = (
    ": memory was full, and Linux killed it; make fewer copies (env.num_envs), or "
    "train fewer Sessions at once"
)
EXIT_SECONDS = 10.0
"""How long a process that has sent its result may take to exit."""


@final
class Child:
    """A process that runs `target(*args, connection, parent)`, sends one result, and
    exits."""

    def __init__(
        self, target: Callable[..., None], args: Sequence[Any], name: str
    ) -> None:
        self._receiver, self._sender = CONTEXT.Pipe(duplex=False)
        every = (*args, self._sender, os.getpid())
        self.process = new_process(target, every, name)
        self._memory_kills = memory_kills()

    def start(self) -> None:
        """Starts the process. Raises OSError at a limit of the system."""
        with closing(self._sender), undone_on_failure(self._receiver.close):
            start(self.process)

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`, ready when it ends."""
        return [self.process.sentinel, self._receiver]

    @property
    def has_ended(self) -> bool:
        """Whether it has sent its result or died."""
        return not self.process.is_alive() or self._receiver.poll()

    def end(self, seconds: float = EXIT_SECONDS) -> tuple[Any, str]:
        """The result that it sent, None if it died first; and how it ended, for a
        message. It has `seconds` to exit after its result."""
        result = None
        with suppress(EOFError, OSError):
            result = None
            if self._receiver.poll():
                result = self._receiver.recv()
        self.process.join(seconds)
        self.kill()
        how = _end_text(self.process.exitcode)
        was_killed = self.process.exitcode == -signal.SIGKILL
        if was_killed and memory_kills() > self._memory_kills:
            how += OUT_OF_MEMORY
        return result, how

    def kill(self) -> None:
        """Kills it if it still runs, and waits for that."""
        end(self.process)
        self._receiver.close()


def _end_text(code: int | None) -> str:
    """The end of a process without a result, as text."""
    if code == 255:  # the code that Python reports then
        return LOST_SERVER
    if code is None or code >= 0:
        return f"process ended early (exit code {code}){exit_reason(code or 0)}"
    return f"process was killed by signal {-code} (exit code {code}){exit_reason(code)}"


@final
class Processes(Runner):
    """One process for each Session."""

    def __init__(self, status_board: StatusBoard) -> None:
        self._status_board = status_board
        self._running: dict[int, Child] = {}
        self.running = self._running.keys()
        self._logs: dict[int, Path] = {}

    @override
    def start(self, task: SessionTask) -> SessionEnd | None:
        child = Child(
            session_main, (task, self._status_board.raw), f"session-{task.session}"
        )
        self._running[task.session] = child  # an interrupt here must not lose it
        self._logs[task.session] = task.paths.log
        try:
            child.start()
        except OSError as error:
            del self._running[task.session]
            why = f"its process could not be started: {limit_reached(error) or error}"
            return SessionEnd(task.session, None, why)
        return None

    @override
    def ended(self, seconds: float) -> list[SessionEnd]:
        wait(
            [
                waitable
                for child in self._running.values()
                for waitable in child.waitables
            ],
            seconds,
        )
        ended = []
        for session, child in list(self._running.items()):
            if child.has_ended:
                result, how = child.end(
                    1.0 if self._status_board.user_waits else EXIT_SECONDS
                )
                del self._running[session]
                ended.append(
                    SessionEnd(session, result, f"the {how}", child.process.exitcode)
                )
                if result is None:  # it could not write this itself
                    note_in_log(self._logs[session], [f"Session {session}: the {how}"])
        return ended

    @override
    def kill(self, session: int) -> None:
        kill_with_children(self._running[session].process)

    @override
    def close(self) -> None:
        for child in self._running.values():
            child.kill()
        self._running.clear()

    @override
    def waits_for_disk(self, session: int) -> bool:
        child = self._running.get(session)
        return child is not None and waits_for_disk(child.process.pid)


def run_sessions(
    tasks: Sequence[SessionTask],
    status_board: StatusBoard,
    on_tick: Callable[[], None],
    max_parallel: int | None = None,
) -> list[SessionResult]:
    """Runs independent Sessions to their ends, at most `max_parallel` at a time."""
    supervisor = Supervisor(
        Processes(status_board), tasks, status_board, max_parallel=max_parallel
    )
    sessions = [task.session for task in tasks]
    supervisor.watch(sessions, partial(session_due, status_board, sessions))
    return supervisor.run(on_tick)
