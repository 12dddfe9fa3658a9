"""Independent Sessions in spawned processes, at most as many at once as there are cores."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.worker import SessionTask, session_main

TICK = 0.2
"""Seconds between two looks at the clock; a process that ends is noticed at once."""

EXIT_SECONDS = 10.0
"""How long a process that has sent its result may take to exit."""

SPAWN = multiprocessing.get_context("spawn")


class Processes:
    """Runs tasks, one process each, and watches them until all have ended."""

    def __init__(self, tasks: Sequence[SessionTask], board: Board, max_parallel: int) -> None:
        self._waiting = deque(tasks)
        self._board = board
        self._max_parallel = max_parallel
        self._running: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._results: list[SessionResult] = []

    def run(self, on_tick: Callable[[], None]) -> list[SessionResult]:
        """Results in the order of the tasks; `on_tick` is called a few times a second.

        No process is left behind, whatever `on_tick` raises.
        """
        try:
            while self._running or self._waiting:
                self._start_waiting()
                sentinels = [process.sentinel for process, _ in self._running.values()]
                pipes = [pipe for _, pipe in self._running.values()]
                wait([*sentinels, *pipes], TICK)
                self._collect()
                on_tick()
        finally:
            self.kill()
        return sorted(self._results, key=lambda result: result.session)

    def kill(self) -> None:
        """Kills whatever still runs."""
        for process, pipe in self._running.values():
            process.kill()
            process.join()
            pipe.close()
        self._running.clear()

    def _start_waiting(self) -> None:
        if self._board.stop_requested:
            for task in self._waiting:
                self._results.append(SessionResult(task.session, Ending.INTERRUPTED, 0))
            self._waiting.clear()
        while self._waiting and len(self._running) < self._max_parallel:
            task = self._waiting.popleft()
            ours, theirs = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(
                target=session_main,
                args=(task, self._board.raw, theirs, os.getpid()),
                name=f"session-{task.session}",
            )
            process.start()
            theirs.close()
            self._running[task.session] = (process, ours)

    def _collect(self) -> None:
        for session, (process, pipe) in list(self._running.items()):
            if process.is_alive() and not pipe.poll():
                continue
            result = _receive(pipe)
            process.join(EXIT_SECONDS)
            process.kill()  # has said its last word and still hangs; no effect once it is gone
            process.join()
            pipe.close()
            if result is None:
                result = _died(session, process.exitcode, self._board)
            self._results.append(replace(result, exit_code=process.exitcode))
            del self._running[session]


def _receive(pipe: Connection) -> SessionResult | None:
    """The result a process sent, or None when it died before it could."""
    try:
        if pipe.poll():
            result: SessionResult = pipe.recv()
            return result
    except (EOFError, OSError):
        pass
    return None


def _died(session: int, exit_code: int | None, board: Board) -> SessionResult:
    board.write(session, phase=Phase.FAILED)
    how = f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else "ended early"
    frame = int(board.clock_slots[session])
    return SessionResult(
        session, Ending.FAILED, frame, f"the process {how} (exit code {exit_code})"
    )
