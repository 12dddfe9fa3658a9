"""Supervises the Sessions of a training: starts, replaces and ends them."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias, final

from slm_lab.core.errors import CheckpointError
from slm_lab.parallel.hang_detector import Due, HangDetector, Limits
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import TO_BEGIN, Phase, StatusBoard
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.result import Ending, SessionResult

TICK = 0.2
"""Seconds between two ticks; the end of a Session is noticed at once."""
STOP_SECONDS = 3.0
"""How long a Session may take to end its step when the user waits."""
CLUSTER_STOP_SECONDS = 15.0
"""The limit on a cluster, where files and results are transferred at the end."""


class SessionEnd(NamedTuple):
    """The end of a Session, or why it died; `lost`: with its machine."""

    session: int
    result: SessionResult | None
    """The result that it reported; None if it died first."""
    why: str = ""
    exit_code: int | None = None
    """The exit code of its process, if that ran on this machine."""
    lost: bool = False


class Runner(ABC):
    """Runs Sessions: in processes on this machine, or on the nodes of a cluster."""

    running: Collection[int]
    """The Sessions that run now: a live view."""

    @abstractmethod
    def start(self, task: SessionTask) -> SessionEnd | None:
        """Starts a Session; returns its end if that is impossible."""

    @abstractmethod
    def ended(self, seconds: float) -> list[SessionEnd]:
        """Waits up to `seconds` for a Session to end; returns the Sessions that have
        ended since."""

    @abstractmethod
    def kill(self, session: int) -> None:
        """Kills a running Session; `ended` reports it later."""

    @abstractmethod
    def close(self) -> None:
        """Kills all that still run, and frees what they used."""

    def waits_for_disk(self, session: int) -> bool:
        """Whether a Session waits for a disk, so that not even a kill would take
        effect."""
        return False


Restart: TypeAlias = Callable[[SessionTask, SessionResult, bool], SessionTask | None]
"""Makes the task that replaces a failed Session, from its task, its result and whether
it made frames. None if it would fail again."""


def replacement(
    task: SessionTask, failed: SessionResult, made_frames: bool
) -> SessionTask | None:
    """A new worker takes over. One that failed by itself before its first step would
    fail again."""
    if not (failed.was_killed or made_frames):
        return None
    return replace(task, resume=False, replaces=str(failed.error))


def resumed(
    task: SessionTask, failed: SessionResult, made_frames: bool
) -> SessionTask | None:
    """A killed Session resumes from its last checkpoint."""
    if failed.would_repeat or not failed.was_killed:
        return None
    return replace(task, resume=True, restarted_because=failed.error)


def ended_with(session: int) -> str:
    """Why the others end with a Session that they need, as text."""
    return f"ended because Session {session} ended, which it cannot train without"


@final
class Supervisor:
    """Runs tasks until all have ended.

    If `restart` is given, it restarts a failed Session up to `max_restart` times. A
    Session that hangs has failed, see `watch`. If a `vital` one fails, all end.

    After a stop for which the user waits, Sessions that have not begun are killed.
    Those that do not end their step within `stop_seconds` are killed too, unless they
    write a checkpoint."""

    def __init__(
        self,
        runner: Runner,
        tasks: Sequence[SessionTask],
        status_board: StatusBoard,
        *,
        max_parallel: int | None = None,
        restart: Restart | None = None,
        max_restart: int = 0,
        stop_seconds: float = STOP_SECONDS,
        vital: Collection[int] = (),
    ) -> None:
        self._runner = runner
        self._waiting = deque(tasks)
        self._tasks = {task.session: task for task in tasks}
        self._began_at: dict[int, int] = {}
        self._restarts = {task.session: 0 for task in tasks}
        self._why_restarted: dict[int, str] = {}
        self._restart = restart
        self._max_restart = max_restart
        self._max_parallel = len(tasks) if max_parallel is None else max_parallel
        self._stop_seconds = stop_seconds
        self._vital = frozenset(vital)
        self._stop_seen: float | None = None
        self._saving_at: dict[int, float] = {}
        """The time at which each Session was last seen to save after the stop. While it
        saves, its step may take longer."""
        self._given_up: dict[int, bool] = {}
        """Sessions killed after a stop: whether each had begun."""
        self._watched: list[tuple[HangDetector, str | None]] = []
        self._limits = Limits.of(tasks[0].spec.meta) if tasks else None
        self._hung: dict[int, str] = {}
        self._status_board = status_board
        self._results: list[SessionResult] = []

    @property
    def failed(self) -> list[SessionResult]:
        """Results of Sessions that have failed and are not restarted, in the order of
        failure."""
        return [result for result in self._results if result.ending is Ending.FAILED]

    def run(self, on_tick: Callable[[], None]) -> list[SessionResult]:
        """Results in the order of the Sessions; `on_tick` is called a few times a
        second. No Session survives this call, whatever `on_tick` raises."""
        try:
            while self.tick(TICK):
                on_tick()
        finally:
            self._runner.close()
        return sorted(self._results, key=lambda result: result.session)

    def tick(self, seconds: float) -> bool:
        """Starts, replaces and ends Sessions; waits up to `seconds` for one to end.
        Returns False if none is left."""
        self._start_waiting()
        if not self._runner.running:
            return False
        for ended in self._runner.ended(seconds):
            self._collect(ended)
        self._give_up_late()
        self._end_hung()
        return True

    def watch(
        self,
        sessions: Sequence[int],
        due: Due,
        why: str | None = None,
        limit: float | None = None,
    ) -> None:
        """Kills the Sessions among `sessions` that hang, see `HangDetector`. By default
        the limits are the spec's. `why` replaces the reported reason. `due(i)` is of
        `sessions[i]`. A Session that waits for a disk does not hang."""
        if self._limits is None:
            return

        def due_off_disk(index: int) -> Hashable | None:
            sign = due(index)
            waits = sign is not None and self._runner.waits_for_disk(sessions[index])
            if waits:
                return None
            return sign

        detector = HangDetector(
            status_board=self._status_board,
            sessions=sessions,
            due=due_off_disk,
            limits=self._limits,
            seconds=limit,
        )
        self._watched.append((detector, why))

    def _end_hung(self) -> None:
        for detector, why in self._watched:
            for session, default in detector.hung():
                if session in self._runner.running:
                    self._hung[session] = why or default
                    self._runner.kill(session)

    def _start_waiting(self) -> None:
        if self._status_board.stop_requested:
            self._results += [self._interrupted(task.session) for task in self._waiting]
            self._waiting.clear()
        while self._waiting and len(self._runner.running) < self._max_parallel:
            task = self._waiting.popleft()
            self._began_at.setdefault(
                task.session, int(self._status_board.clock_slots[task.session])
            )
            self._status_board.saving[task.session] = 0
            ended = self._runner.start(task)
            if ended is not None:
                self._collect(ended)

    def _collect(self, ended: SessionEnd) -> None:
        session = ended.session
        result = ended.result
        if result is None and session in self._given_up:
            error = None
            if self._given_up[session]:
                error = self._end_reason(session)
            result = replace(self._interrupted(session), error=error)
        elif result is None:
            result_so_far = self._kept(session)
            ended_why = ended.why
            if result_so_far is not None:
                ended_why = f"{ended.why}; {result_so_far}"
            why = self._hung.pop(session, "") or ended_why
            result = self._failed(session, why, ended.lost)
        result = replace(
            result,
            exit_code=ended.exit_code,
            restarts=self._restarts[session],
            restarted_because=self._why_restarted.get(session),
        )
        if result.ending is Ending.FAILED and self._restarts_after(result):
            return
        self._keep(result)
        if result.ending is Ending.FAILED and session in self._vital:
            self._end_others(session)

    def _keep(self, result: SessionResult) -> None:
        if result.ending is Ending.FAILED:
            self._status_board.write(result.session, phase=Phase.FAILED)
            self._status_board.reasons[result.session] = str(result.error)
        self._results.append(result)

    def _restarts_after(self, failed: SessionResult) -> bool:
        """Whether a failed Session is restarted; then it waits for its start."""
        session = failed.session
        status_board = self._status_board
        is_final = session in self._vital or status_board.stop_requested
        if self._restart is None or is_final or failed.restarts >= self._max_restart:
            return False
        made_frames = bool(status_board.clock_slots[session] > self._began_at[session])
        task = self._restart(self._tasks[session], failed, made_frames)
        if task is None:
            return False
        self._restarts[session] += 1
        self._why_restarted[session] = str(failed.error)
        status_board.write(
            session, phase=Phase.WAITING, restarts=self._restarts[session]
        )
        status_board.reasons[session] = str(failed.error)
        self._tasks[session] = task
        self._waiting.append(task)
        return True

    def _end_others(self, lost: int) -> None:
        """Ends running and waiting Sessions, which cannot train without the lost
        one."""
        for session in [
            *self._runner.running,
            *(task.session for task in self._waiting),
        ]:
            result = self._failed(session, ended_with(lost))
            self._keep(replace(result, lost_others=True))
        self._runner.close()
        self._waiting.clear()
        self._max_restart = 0

    def _give_up_late(self) -> None:
        if not self._status_board.user_waits:
            return
        now = time.monotonic()
        self._stop_seen = now if self._stop_seen is None else self._stop_seen
        for session in list(self._runner.running):
            if self._status_board.saving[session]:
                self._saving_at[session] = now
            since = self._saving_at.get(session, self._stop_seen)
            has_begun = self._status_board.phase(session) not in TO_BEGIN
            if not has_begun or now - since > self._stop_seconds:
                self._given_up.setdefault(session, has_begun)
                self._runner.kill(session)
        if now - self._stop_seen > self._stop_seconds and not self._status_board.stage:
            self._status_board.stage = self._slow_disk_text()

    def _slow_disk_text(self) -> str:
        """The disk that a stop waits for beyond its time, as text; "" if there is
        none."""
        runner = self._runner
        saving = self._status_board.saving
        late = [
            session
            for session in runner.running
            if saving[session] or runner.waits_for_disk(session)
        ]
        names = ", ".join(f"Session {session}" for session in late)
        if late:
            return f"waiting for the disk of {names}; Ctrl-C again ends at once"
        return ""

    def _interrupted(self, session: int) -> SessionResult:
        self._status_board.write(session, phase=Phase.STOPPED)
        frame = int(self._status_board.clock_slots[session])
        restarts = self._restarts[session]
        return SessionResult(session, Ending.INTERRUPTED, frame, restarts=restarts)

    def _failed(self, session: int, why: str, lost: bool = False) -> SessionResult:
        frame = int(self._status_board.clock_slots[session])
        return SessionResult(session, Ending.FAILED, frame, why, lost=lost)

    def _end_reason(self, session: int) -> str:
        """The reason of a kill after a stop, and the checkpoint that is kept."""
        return (
            f"its step did not end within {self._stop_seconds:g} s of the stop; it "
            f"was killed at frame {int(self._status_board.clock_slots[session]):,}; "
            f"{self._kept(session) or 'it has no checkpoint yet'}"
        )

    def _kept(self, session: int) -> str | None:
        """The checkpoint with which a resume of a Session begins, as text; None without
        one."""
        manifest = None
        with suppress(CheckpointError):  # a resume reports it
            manifest = read_manifest(self._tasks[session].paths.manifest)
        if manifest is None:
            return None
        return f"its checkpoint at frame {manifest.frame:,} is kept"
