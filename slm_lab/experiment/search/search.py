"""A search in its folder: runs trials until the engine has no more to propose."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

from slm_lab.analysis.atomic import write_json
from slm_lab.core.errors import LabError, SpecError
from slm_lab.experiment.baseline import CHANCE_FILE
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run import check_spaces
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.search.checkpoint_copy import copy_checkpoints, delete_models
from slm_lab.experiment.search.engine import Engine
from slm_lab.experiment.search.judge import Judge, Order, What
from slm_lab.experiment.search.outcomes import best_first, metrics_at
from slm_lab.experiment.search.pool import Pool
from slm_lab.experiment.search.process import TrialEnd, TrialProcess, TrialTask
from slm_lab.experiment.search.record import (
    Began,
    Copied,
    Ended,
    Event,
    Interrupted,
    Paused,
    Proposed,
    Record,
    Reported,
    Retried,
    Standing,
    Status,
    TrialState,
)
from slm_lab.experiment.search.reports import Watch
from slm_lab.experiment.search.room import Needs, needs_of
from slm_lab.experiment.search.space import spec_at
from slm_lab.spec.schema.spec import Spec

METRIC = "final_return"
"""The metric of a Trial that is maximised."""
NO_ROOM = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What a failure says that every trial after it would meet as well."""


@final
class Search:
    """Runs the trials of a search, and notes everything that happens before it acts on it.

    A trial has the number that its Sessions' seeds come from, and that its files are named by.
    """

    def __init__(
        self,
        spec: Spec,
        run_dir: RunDir,
        root_seed: int,
        engine: Engine,
        judge: Judge,
        pool: Pool,
        imports: tuple[str, ...] = (),
        keep: int | None = None,
    ) -> None:
        """Takes up what the record in the folder holds. Raises UsageError where it is damaged."""
        self.spec = spec
        self.run_dir = run_dir
        self.pool = pool
        self.num_trials = engine.num_trials
        self.standing = Standing()
        self.stopping = False
        self.has_strayed = False
        """Whether the engine proposed other points than the record holds, as another version of it
        may; it goes on from what it was told."""
        self.problem: str | None = None
        """Why it has stopped by itself, before its end."""
        self._chance_file = run_dir.root.parent / CHANCE_FILE
        self._root_seed = root_seed
        self._engine = engine
        self._judge = judge
        self._imports = imports
        self._keep = keep
        self._record = Record(run_dir.search_record)
        self._watches: dict[int, Watch] = {}
        self._orders: dict[int, Order] = {}
        """What is to become of trials that have not yet ended as they were told to."""
        self._ending: set[int] = set()
        """Those whose processes have ended, and that are to be collected."""
        self._held: dict[int, float] = {}
        """Those that do not run and take over as soon as their donor has saved, with the seconds
        that are yet to be noted."""
        self._specs: dict[int, Spec] = {}
        for event in self._record.read():
            self._replay(event)

    def run(self, on_tick: Callable[[], None]) -> None:
        """To the end, or until it is stopped; `on_tick` is called a few times a second.

        No process is left behind, whatever is raised. Raises LabError where the record cannot be
        written.
        """
        try:
            for its in self.standing.of(Status.RUNNING):  # when it was killed
                self._note(Interrupted(its.trial, 0.0))
            self._try_again()
            for order in list(self._orders.values()):
                self._carry_out(order)
            while True:
                if self.stopping:
                    self.pool.stop_all()  # one may have been about to begin
                else:
                    self._fill()
                if not self.pool.running:
                    break
                self.pool.wait()
                self._look()
                on_tick()
            if not self.stopping:
                self._end_paused()
        finally:
            self.pool.kill_all()
            self._record.close()

    def _try_again(self) -> None:
        """What has failed, where more restarts are allowed by now. Not under a judge that goes by
        rounds: those that it failed in are over."""
        for its in self.standing.of(Status.FAILED):
            left = its.restarts < self.spec.meta.max_restart
            if left and its.has_begun and not its.would_repeat and not self._judge.needs_all:
                self._note(Retried(its.trial, str(its.error), 0.0))

    def stop(self) -> None:
        """Has the trials that run save and end; no other begins."""
        self.stopping = True
        self.pool.stop_all()

    def spec_of(self, trial: int) -> Spec:
        """The spec of a trial. Raises SpecError where its point makes none."""
        if trial not in self._specs:
            self._specs[trial] = spec_at(self.spec, self.standing.trials[trial].point)
        return self._specs[trial]

    def note(self, event: Event) -> None:
        """Writes down what happened beside the trials."""
        self._record.write(event)
        self.standing.apply(event)

    def _note(self, event: Event) -> list[Order]:
        self.note(event)
        return self._tell(event)

    def _tell(self, event: Event) -> list[Order]:
        """What the engine and the judge have to know of an event; the orders that come of it."""
        match event:
            case Proposed(trial, point):
                self._judge.add(trial, point)
            case Began(trial):
                self._judge.begin(trial)
            case Reported(trial, frame, score):
                self._engine.report(trial, self.standing.trials[trial].reports, score)
                return self._judge.report(trial, frame, score)
            case Ended(trial, score=score):
                self._engine.end(trial, score)
                return self._judge.end(trial)
            case _:
                pass
        return []

    def _replay(self, event: Event) -> None:
        """As it was when it happened, but for what has been done about it since."""
        if isinstance(event, Proposed):
            point = self._engine.propose(event.trial)
            self.has_strayed |= dict(point) != dict(event.point)
        self.standing.apply(event)
        orders = self._tell(event)
        self._orders |= {order.trial: order for order in orders}
        if isinstance(event, Began | Paused | Copied | Ended):
            self._orders.pop(event.trial, None)

    def _fill(self) -> None:
        """Begins trials as long as there is room for one."""
        least = self._needs(self.spec)
        while self.pool.room.has(least) or not self.pool.running:
            trial = self._next()
            if trial is None or not self._begin(trial):
                return

    def _next(self) -> int | None:
        """What was interrupted goes on first; then the judge chooses; then there is a new one."""
        for its in self.standing.of(Status.WAITING):
            if its.has_begun and its.trial not in self._held:
                return its.trial
        while self._judge.needs_all and self._propose() is not None:
            pass
        waiting = self.standing.of(Status.WAITING, Status.PAUSED)
        free = [its.trial for its in waiting if its.trial not in self._held]
        chosen = self._judge.choose(free)
        return self._propose() if chosen is None else chosen

    def _propose(self) -> int | None:
        """The next trial of the engine, if it has one left."""
        trial = len(self.standing.trials)
        if trial >= self.num_trials:
            return None
        self._note(Proposed(trial, self._engine.propose(trial)))
        return trial

    def _begin(self, trial: int) -> bool:
        """Whether it was begun, or could never be; False where it has to wait for room."""
        its = self.standing.trials[trial]
        try:
            spec = self.spec_of(trial)
            needs = self._needs(spec)
            self.pool.room.check(needs)
            if not its.has_begun:
                check_spaces(f"trial {trial}", spec)
        except LabError as error:
            self._end(its, Status.FAILED, 0.0, {}, _problems(error))
            return True
        if not self.pool.room.has(needs):
            return False
        self._start(its, spec, needs)
        return True

    def _needs(self, spec: Spec) -> Needs:
        return needs_of(spec, self.spec.meta.search_resources, self.pool.room.cpus)

    def _start(self, its: TrialState, spec: Spec, needs: Needs) -> None:
        resume = its.has_begun
        if not resume or its.copies:
            _write_spec(self.run_dir.trial_spec_file(its.trial), spec)
        self._note(Began(its.trial))
        paths = [self.run_dir.session(its.trial, s).rows for s in spec.meta.writers]
        self._watches[its.trial] = Watch(paths, its.frame)
        task = TrialTask(
            spec,
            self.run_dir,
            self._root_seed,
            its.trial,
            resume,
            self._imports,
            at_once=self.spec.meta.search_scheduler is not None,
            chance_file=self._chance_file,
        )
        self.pool.start(its.trial, task, needs, among_gpus=spec.meta.cluster is None)

    def _look(self) -> None:
        """Takes in what has been reported, and what has ended."""
        for trial in list(self.pool.running):
            if trial in self.pool.running:  # else another's report has just ended it
                self._hear(trial)
        ends = self.pool.ends()
        self._ending = {trial for trial, _, _ in ends}
        for trial, _, _ in ends:
            self._hear(trial, at_the_end=True)
        for trial, process, end in ends:
            self._ending.discard(trial)
            self._collect(self.standing.trials[trial], process, end)

    def _hear(self, trial: int, at_the_end: bool = False) -> None:
        """What a trial reports, up to the report by which it is told to end or to pause."""
        if trial in self._orders:
            return
        orders: list[Order] = []
        for frame, score in self._watches[trial].look(at_the_end):
            orders += self._note(Reported(trial, frame, score))
            if any(order.trial == trial for order in orders):
                break
        for order in orders:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        its = self.standing.trials[order.trial]
        if its.status.is_over:
            return
        self._orders[order.trial] = order
        if order.trial in self.pool.running:
            self.pool.stop(order.trial)
        elif order.trial not in self._ending:  # else it is obeyed when it is collected
            self._obey(its, order, 0.0, its.metrics)

    def _obey(
        self, its: TrialState, order: Order, seconds: float, metrics: Mapping[str, float | None]
    ) -> None:
        """A trial that does not run any more becomes what it was told to."""
        match order.what:
            case What.STOP:
                self._end(its, Status.STOPPED, seconds, metrics)
            case What.PAUSE:
                del self._orders[its.trial]
                self._note(Paused(its.trial, seconds, metrics))
            case What.COPY:
                self._copy(its, order, seconds)

    def _copy(self, its: TrialState, order: Order, seconds: float) -> None:
        """It goes on from another's checkpoint; where that has none yet, from its own. One that has
        been told to pause is about to save what is to be taken over."""
        if order.donor in self._orders and order.donor in self.pool.running:
            self._held[its.trial] = seconds
            return
        frame = copy_checkpoints(self.run_dir, self.spec_of(order.donor), order.donor, its.trial)
        donor = its.trial if frame is None else order.donor
        self._specs.pop(its.trial, None)
        del self._orders[its.trial]
        now = its.frame if frame is None else frame
        self._note(Copied(its.trial, donor, order.point, now, seconds))

    def _collect(self, its: TrialState, process: TrialProcess, end: TrialEnd) -> None:
        """The end of a process: of the trial itself, or of its turn."""
        order = self._orders.get(its.trial)
        seconds, metrics = process.seconds, end.metrics
        if end.ending is Ending.FINISHED:
            self._end(its, Status.FINISHED, seconds, metrics, frame=process.frame)
        elif end.ending is Ending.FAILED:
            self._fail(its, end, seconds)
        elif order is not None:
            self._obey(its, order, seconds, metrics)
        elif self.stopping:
            self._note(Interrupted(its.trial, seconds))
        else:
            outside = TrialEnd(Ending.FAILED, {}, "somebody else has stopped its process")
            self._fail(its, outside, seconds)
        for taker in [taker for taker in self._held if self._orders[taker].donor == its.trial]:
            held = self._held.pop(taker)
            self._copy(self.standing.trials[taker], self._orders[taker], held)

    def _fail(self, its: TrialState, end: TrialEnd, seconds: float) -> None:
        error = end.error or "no reason is known"
        if any(words in error for words in NO_ROOM):
            self.problem = f"t{its.trial}: {error}"
            self.stop()
        tries_left = its.restarts < self.spec.meta.max_restart
        if tries_left and not end.would_repeat and not self.stopping:
            self._note(Retried(its.trial, error, seconds))
            if its.trial in self._orders:
                self._obey(its, self._orders[its.trial], 0.0, its.metrics)
        elif self.stopping and not end.would_repeat:
            self._note(Interrupted(its.trial, seconds))
        else:
            self._end(its, Status.FAILED, seconds, {}, error, would_repeat=end.would_repeat)

    def _end(
        self,
        its: TrialState,
        status: Status,
        seconds: float,
        metrics: Mapping[str, float | None],
        error: str | None = None,
        frame: int | None = None,
        would_repeat: bool = False,
    ) -> None:
        self._orders.pop(its.trial, None)
        score, spent = metrics.get(METRIC), its.frame if frame is None else frame
        if status is Status.STOPPED and its.score is not None:
            # As it was where it was compared, not where it stood still.
            score, spec = its.score, self.spec_of(its.trial)
            metrics = metrics_at(self.run_dir, its.trial, spec, spent, self._chance_file)
        ended = Ended(its.trial, status, spent, score, seconds, metrics, error, would_repeat)
        orders = self._note(ended)
        self._delete_superseded()
        for order in orders:
            self._carry_out(order)

    def _end_paused(self) -> None:
        """Those that the scheduler has not called again: nobody is left to be compared with."""
        for its in self.standing.of(Status.PAUSED, Status.WAITING):
            if not its.status.is_over:  # through the end of another
                self._end(its, Status.STOPPED, 0.0, its.metrics)

    def _delete_superseded(self) -> None:
        """With `keep` only the best of those that have ended keep their checkpoints."""
        if self._keep is None:
            return
        over = [its for its in best_first(self.standing) if its.status.is_over]
        for its in over[self._keep :]:
            delete_models(self.run_dir, its.trial)


def _problems(error: LabError) -> str:
    if isinstance(error, SpecError):
        return "; ".join(str(problem) for problem in error.problems)
    return str(error)


def _write_spec(path: Path, spec: Spec) -> None:
    write_json(path, {spec.name: spec.to_json()})
