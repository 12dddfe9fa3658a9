"""A Trial: runs the Sessions of one spec in processes, and draws their rows."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

from slm_lab.core.errors import LabError
from slm_lab.core.process import importing, stop_on_signals, usable_cores
from slm_lab.core.registry import load_target
from slm_lab.metrics.reader import read_existing, read_rows
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.processes import run_sessions
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import Manifest, read_manifest
from slm_lab.storage.result import Ending, SessionResult, TrialResult, never_began
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.baseline import (
    LEAST_SECONDS,
    NOT_MEASURED,
    RANDOM_RETURNS_FILE,
    SHARE,
    RandomBaseline,
    RandomReturn,
)

if TYPE_CHECKING:
    from slm_lab.studies.report import Reporter

Launcher: TypeAlias = Callable[
    [Sequence[SessionTask], StatusBoard, Callable[[], None]], list[SessionResult]
]
"""Runs the Sessions of one training, and calls the function a few times a second."""

DRAW_INTERVAL = 30.0
"""The minimum number of seconds between two drawings of the live graphs."""
DRAW_SHARE = 0.02
"""The share of the time that drawing may take: long runs are drawn less often."""


@final
@dataclass(frozen=True)
class TrialTask:
    """What a Trial trains, and where."""

    spec: Spec
    run_dir: RunDir
    root_seed: int
    trial: int = 0
    resume: bool = False
    imports: tuple[str, ...] = ()
    at_once: bool = False
    """Whether all independent Sessions run at the same time; by default one per
    core."""
    random_returns_file: Path | None = None
    """Caches the Random agent's return; by default in the folder of run folders."""
    one_of_many: bool = False
    """Whether other trials have files in the same folder; such a Trial draws fewer
    graphs."""
    checked: bool = False
    """Whether the checks of the dev mode are on."""
    until: int | None = None
    """The total frame of each training at which it saves and stops, as a replay does.
    None: the end of the budget."""
    final_episodes: int = 0
    """The greedy episodes that each agent plays after a training in a pool."""

    @property
    def folder(self) -> str | None:
        """The name of its own run folder; None if it is one of many in a folder."""
        if self.one_of_many:
            return None
        return self.run_dir.root.name


class DrawTimer:
    """Decides when to draw: at intervals, in a small share of the time."""

    def __init__(self) -> None:
        self._due = time.monotonic() + DRAW_INTERVAL

    def draw_if_due(self, draw: Callable[[], object]) -> None:
        """Calls `draw` if it is time for it; call this a few times a second."""
        began = time.monotonic()
        if began < self._due:
            return
        draw()
        now = time.monotonic()
        self._due = now + max(DRAW_INTERVAL, (now - began) / DRAW_SHARE)


class Trial:
    """Runs the Sessions of one spec, each in its own process. `on_tick` is called a few
    times a second with the Sessions' status board. The caller may pass a
    `status_board`."""

    def __init__(
        self,
        task: TrialTask,
        on_tick: Callable[[StatusBoard], None] = lambda status_board: None,
        status_board: StatusBoard | None = None,
    ) -> None:
        self.task = task
        self.spec = task.spec
        self.run_dir = task.run_dir
        self._on_tick = on_tick
        cache = (
            task.random_returns_file or task.run_dir.root.parent / RANDOM_RETURNS_FILE
        )
        self._baseline = RandomBaseline(
            cache, task.spec.of_session(task.trial, 0).env, task.imports
        )
        self._draw_timer = DrawTimer()
        self.status_board = status_board or StatusBoard.allocate(
            CONTEXT, task.spec.meta.num_sessions, task.spec.most_copies
        )

    def run(self) -> TrialResult:
        """Trains, then writes metrics and graphs. Ctrl-C saves all Sessions and ends
        early, without further graphs."""
        with stop_on_signals(self.status_board.request_stop):
            sessions = self.train(self._tick)
            random = NOT_MEASURED
            if not never_began(sessions):
                random = self._random_return()
                self._enter("drawing the graphs")
            return self._reporter.finish(
                sessions, random, lambda: self.status_board.user_waits
            )

    def replay(self) -> TrialResult | None:
        """Trains to `task.until`, without graphs. Returns None if every Session has
        come so far. Otherwise returns the result of a Trial that the user has stopped,
        or that has failed."""
        with stop_on_signals(self.status_board.request_stop):
            sessions = self.train(self._tick)
        is_stopped = self.status_board.user_waits or any(end.error for end in sessions)
        if not is_stopped:
            return None
        return self._reporter.finish(sessions, NOT_MEASURED, lambda: True)

    def _random_return(self) -> RandomReturn:
        """The mean return of the Random agent, measured if it is unknown. It is not
        measured in the dev mode, nor where no episode of the training has ended. It is
        also not measured while a user waits for a stop."""

        def keep_waiting() -> bool:
            self._on_tick(self.status_board)
            return not self.status_board.user_waits

        files = {
            session: self.run_dir.session(self.task.trial, session).rows
            for session in self.spec.meta.writers
        }
        rows = read_existing(files).values()
        known = self._baseline.known
        if not any(
            session_rows["epi"][-1] > 0 for session_rows in rows if len(session_rows)
        ):
            why = f"{known.why}: no episode of the training has ended"
            return known._replace(why=why)
        if self.task.checked:
            return known
        self._enter("comparing with the Random agent")
        if self.status_board.user_waits:
            return known
        trained = max(
            float(session_rows["wall_t"][-1])
            for session_rows in rows
            if len(session_rows)
        )
        return self._baseline.measured(
            max(SHARE * trained, LEAST_SECONDS), keep_waiting
        )

    def train(self, on_tick: Callable[[], None]) -> list[SessionResult]:
        """Runs the Sessions, without metrics and graphs; calls `on_tick` a few times a
        second."""
        meta = self.spec.meta
        results = self._finished_before() if self.task.resume else []
        done = {result.session for result in results}
        tasks = [
            SessionTask(
                spec=self.spec,
                run_dir=self.run_dir,
                root_seed=self.task.root_seed,
                trial=self.task.trial,
                session=session,
                num_sessions=meta.num_sessions,
                resume=self.task.resume,
                checked=self.task.checked,
                imports=self.task.imports,
                until=self.task.until,
            )
            for session in range(meta.num_sessions)
            if session not in done
        ]
        if meta.distributed is False and meta.cluster is None:
            at_a_time = len(tasks) if self.task.at_once else usable_cores()
            results += run_sessions(tasks, self.status_board, on_tick, at_a_time)
        elif meta.distributed is False:
            results += (
                self._launcher()(tasks, self.status_board, on_tick) if tasks else []
            )
        else:
            for workers in meta.trainings:
                sessions = [
                    replace(t, workers=workers) for t in tasks if t.session in workers
                ]
                results += self._run_training(sessions, on_tick) if sessions else []
        return sorted(results, key=lambda result: result.session)

    def _run_training(
        self, tasks: Sequence[SessionTask], on_tick: Callable[[], None]
    ) -> list[SessionResult]:
        """Runs one of several trainings; if it cannot begin, earlier ones keep their
        results."""
        if self.status_board.stop_requested:
            return run_sessions(tasks, self.status_board, on_tick)  # starts none
        try:
            return self._launcher()(tasks, self.status_board, on_tick)
        except LabError as error:
            if tasks[0].workers.start == 0:
                raise
            results = []
            for task in tasks:
                self.status_board.write(task.session, phase=Phase.FAILED)
                self.status_board.reasons[task.session] = str(error)
                frame = int(self.status_board.clock_slots[task.session])
                results.append(
                    SessionResult(task.session, Ending.FAILED, frame, str(error))
                )
            return results

    def _launcher(self) -> Launcher:
        meta = self.spec.meta
        target = meta.mode.launch if meta.cluster is None else meta.mode.cluster_launch
        assert target is not None
        # imports torch, which the parent of independent Sessions does not need
        with importing():
            launcher: Launcher = load_target(target)
        return launcher

    def _finished_before(self) -> list[SessionResult]:
        """Results of the Sessions that had finished before the run was resumed."""
        done = []
        ended, manifests = have_ended(self.spec, self.run_dir, self.task.trial)
        for session, frame in enumerate(_frames_so_far(self.spec, manifests)):
            self.status_board.clock_slots[session] = frame
            if ended[session]:
                done.append(SessionResult(session, Ending.FINISHED, frame))
                self.status_board.write(session, phase=Phase.DONE)
        return done

    def _enter(self, stage: str) -> None:
        """Shows what follows the training, unless the user waits for a stop: it is left
        out."""
        if not self.status_board.user_waits:
            self.status_board.stage = stage
        self._on_tick(self.status_board)

    def _tick(self) -> None:
        self._on_tick(self.status_board)
        if self.status_board.stop_requested:
            _ = self._reporter  # imports while the Sessions save: a user waits for both
        self._draw_timer.draw_if_due(lambda: self._reporter.draw_live())  # noqa: PLW0108 - made late

    @cached_property
    def _reporter(self) -> "Reporter":
        """Made at its first use, because matplotlib doubles the memory of the
        parent."""
        with importing():
            from slm_lab.studies.report import Reporter

        return Reporter(self.spec, self.run_dir, self.task.trial, self.task.one_of_many)


def have_ended(
    spec: Spec, run_dir: RunDir, trial: int
) -> tuple[list[bool], list[Manifest | None]]:
    """Whether each Session has ended, and the newest checkpoint of each. A Session has
    ended if its checkpoint is final and its training has spent the budget or reached
    `meta.stop_return`. Actors have no checkpoint and end with their learner."""
    sessions = range(spec.meta.num_sessions)
    manifests = [
        read_manifest(run_dir.session(trial, session).manifest) for session in sessions
    ]
    ended: list[bool] = []
    for workers in spec.meta.trainings:
        saved = [manifests[session] for session in workers]
        over = (
            sum(manifest.frame for manifest in saved if manifest is not None)
            >= spec.env.max_frame
        )
        finished = [manifest is not None and manifest.finished for manifest in saved]
        if spec.meta.mode.has_learner:
            finished = [finished[0]] * len(workers)
        # A worker that was stopped before it saw the end resumes, and the others report
        # the end.
        over = over or (all(finished) and _is_solved(spec, run_dir, trial, workers))
        ended += [over and is_finished for is_finished in finished]
    return ended, manifests


def _is_solved(spec: Spec, run_dir: RunDir, trial: int, workers: Sequence[int]) -> bool:
    """Whether the rows of a worker of this training reach `meta.stop_return`."""
    target = spec.meta.stop_return
    if target is None:
        return False
    reached = False
    for session in set(workers) & set(spec.meta.writers):
        with suppress(OSError, ValueError):  # the Session will report damaged rows
            recent = read_rows(run_dir.session(trial, session).rows)["recent_return"]
            reached |= bool((recent >= target).any())
    return reached


def _frames_so_far(spec: Spec, manifests: Sequence[Manifest | None]) -> list[int]:
    """Frames on the clock of each Session; an actor gets its share of those learned
    from."""
    frames = [0 if manifest is None else manifest.frame for manifest in manifests]
    for learner, *actors in spec.meta.trainings:
        for n, session in enumerate(actors):
            if spec.meta.is_actor(session):
                learned = frames[learner]
                count = len(actors)
                frames[session] = learned * (n + 1) // count - learned * n // count
    return frames
