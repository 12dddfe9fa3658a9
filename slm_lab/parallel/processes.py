"""Sessions in spawned processes: independent ones, or workers that are replaced when they die."""

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path

from slm_lab.core.errors import CheckpointError
from slm_lab.core.process import stop_signals_blocked
from slm_lab.core.system_limits import limit_reached
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import session_main
from slm_lab.session.status_board import TO_BEGIN, Phase, StatusBoard
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.result import Ending, SessionResult

TICK = 0.2
"""Seconds between two ticks; the end of a process is noticed at once."""

EXIT_SECONDS = 10.0
"""How long a process that has sent its result may take to exit."""
STOP_SECONDS = 4.0
"""How long a Session may take to end its step when the user waits."""

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


class Processes:
    """Runs tasks, one process each, and watches them until all have ended.

    A process that dies after it has made frames is replaced, up to `max_restart` times each. If a
    `vital` Session fails, all Sessions end. After a stop for which the user waits, Sessions that
    have not begun are killed. Those that do not end their step within `stop_seconds` are killed
    too, unless they are writing a checkpoint.
    """

    def __init__(
        self,
        tasks: Sequence[SessionTask],
        board: StatusBoard,
        max_parallel: int,
        max_restart: int = 0,
        stop_seconds: float = STOP_SECONDS,
        vital: Collection[int] = (),
    ) -> None:
        self._waiting = deque(tasks)
        self._tasks = {task.session: task for task in tasks}
        self._began_at: dict[int, int] = {}
        self._restarts = {task.session: 0 for task in tasks}
        self._why_restarted: dict[int, str] = {}
        self._max_restart = max_restart
        self._stop_seconds = stop_seconds
        self._vital = frozenset(vital)
        self._stop_seen: float | None = None
        self._given_up: dict[int, bool] = {}
        """Sessions killed after a stop: whether each had begun."""
        self._hung: dict[int, str] = {}
        self._board = board
        self._max_parallel = max_parallel
        self._running: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._results: list[SessionResult] = []

    def run(self, on_tick: Callable[[], None]) -> list[SessionResult]:
        """Results in the order of the tasks; `on_tick` is called a few times a second.

        No process survives this call, whatever `on_tick` raises.
        """
        try:
            while self._running or self._waiting:
                self._start_waiting()
                sentinels = [process.sentinel for process, _ in self._running.values()]
                pipes = [pipe for _, pipe in self._running.values()]
                wait([*sentinels, *pipes], TICK)
                self._collect()
                self._give_up_late()
                on_tick()
        finally:
            self.kill()
        return sorted(self._results, key=lambda result: result.session)

    @property
    def running(self) -> Collection[int]:
        """The Sessions that have a process now."""
        return self._running.keys()

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

    def end_hung(self, session: int, why: str) -> None:
        """Kills a process that hangs; `why` becomes the reason of its death."""
        if session in self._running:
            self._hung[session] = why
            self._running[session][0].kill()

    def kill(self) -> None:
        """Kills whatever still runs."""
        for process, pipe in self._running.values():
            end(process)
            pipe.close()
        self._running.clear()

    def _start_waiting(self) -> None:
        if self._board.stop_requested:
            for task in self._waiting:
                self._results.append(self._interrupted(task.session))
            self._waiting.clear()
        while self._waiting and len(self._running) < self._max_parallel:
            task = self._waiting.popleft()
            receiver, sender = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(
                target=session_main,
                args=(task, self._board.raw, sender, os.getpid()),
                name=f"session-{task.session}",
            )
            self._running[task.session] = (process, receiver)
            self._began_at.setdefault(task.session, int(self._board.clock_slots[task.session]))
            self._board.saving[task.session] = 0
            try:
                start(process)
            except OSError as error:
                self._could_not_start(task.session, error)
            sender.close()

    def _could_not_start(self, session: int, error: OSError) -> None:
        """Records the failure; the other Sessions continue unless this one is vital."""
        _, pipe = self._running.pop(session)
        pipe.close()
        why = f"its process could not be started: {limit_reached(error) or error}"
        self._results.append(_died(session, why, self._board))
        if session in self._vital:
            self._end_others(session)

    def _collect(self) -> None:
        for session, (process, pipe) in list(self._running.items()):
            if process.is_alive() and not pipe.poll():
                continue
            result = _receive(pipe)
            process.join(1.0 if self._board.user_waits else EXIT_SECONDS)
            end(process)  # in case it hangs after sending its result
            pipe.close()
            if result is None and session in self._given_up:
                error = self._why_ended(session) if self._given_up[session] else None
                result = replace(self._interrupted(session), error=error)
            elif result is None:
                why = self._hung.pop(session, None) or _cause(process.exitcode)
                result = _died(session, why, self._board)
            del self._running[session]
            if result.error is not None and result.ending is Ending.FAILED:
                self._board.reasons[session] = result.error
            if result.ending is Ending.FAILED and self._may_be_replaced(session, process):
                self._replace(session, str(result.error))
                continue
            self._results.append(
                replace(
                    result,
                    exit_code=process.exitcode,
                    restarts=self._restarts[session],
                    restarted_because=self._why_restarted.get(session),
                )
            )
            if session in self._vital and result.ending is Ending.FAILED:
                self._end_others(session)
                return

    def _end_others(self, lost: int) -> None:
        """Ends running and waiting Sessions, which would wait for the lost one in vain."""
        for session in [*self._running, *(task.session for task in self._waiting)]:
            why = f"ended because Session {lost} ended, which it cannot train without"
            result = _died(session, why, self._board)
            self._results.append(replace(result, lost_others=True))
        self.kill()
        self._waiting.clear()

    def _give_up_late(self) -> None:
        if not self._board.user_waits:
            return
        now = time.monotonic()
        self._stop_seen = now if self._stop_seen is None else self._stop_seen
        late = now - self._stop_seen > self._stop_seconds
        for session, (process, _) in self._running.items():
            has_begun = self._board.phase(session) not in TO_BEGIN
            if not has_begun or (late and not self._board.saving[session]):
                self._given_up.setdefault(session, has_begun)
                process.kill()

    def _interrupted(self, session: int) -> SessionResult:
        self._board.write(session, phase=Phase.STOPPED)
        frame, restarts = int(self._board.clock_slots[session]), self._restarts[session]
        return SessionResult(session, Ending.INTERRUPTED, frame, restarts=restarts)

    def _why_ended(self, session: int) -> str:
        """The reason of a kill after a stop, and the checkpoint that is kept."""
        task, manifest = self._tasks[session], None
        with suppress(CheckpointError):  # a resume reports it
            manifest = read_manifest(task.run_dir.session(task.trial, session).manifest)
        kept = "it has no checkpoint yet"
        if manifest is not None:
            kept = f"its checkpoint at frame {manifest.frame:,} is kept"
        return (
            f"its step did not end within {self._stop_seconds:g} s of the stop; it was killed at "
            f"frame {int(self._board.clock_slots[session]):,}; {kept}"
        )

    def _may_be_replaced(self, session: int, process: SpawnProcess) -> bool:
        """False if it failed by itself before its first step: a replacement would fail too."""
        was_killed = (process.exitcode or 0) < 0
        made_frames = self._board.clock_slots[session] > self._began_at[session]
        left = self._restarts[session] < self._max_restart and session not in self._vital
        return (was_killed or bool(made_frames)) and left and not self._board.stop_requested

    def _replace(self, session: int, error: str) -> None:
        self._restarts[session] += 1
        self._why_restarted[session] = error
        self._board.write(session, phase=Phase.WAITING, restarts=self._restarts[session])
        task = replace(self._tasks[session], resume=False, replaces=error)
        self._waiting.append(task)


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


def _died(session: int, why: str, board: StatusBoard) -> SessionResult:
    board.write(session, phase=Phase.FAILED)
    board.reasons[session] = why
    return SessionResult(session, Ending.FAILED, int(board.clock_slots[session]), why)
