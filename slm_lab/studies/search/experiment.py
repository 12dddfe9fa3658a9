"""A search in its folder: runs trials until the searcher has proposed them all."""

import errno
import os
from collections.abc import Callable, Mapping
from typing import final

from typing_extensions import override

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.files import write_json
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.parallel.processes import LOST_SERVER
from slm_lab.records import event_log as events
from slm_lab.records.event_log import Event, EventLog, SearchState
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.pool import (
    Pool,
    Request,
    TrialEnd,
    TrialProcess,
    TrialRunner,
    request_of,
)
from slm_lab.studies.run import check_machine, check_spaces
from slm_lab.studies.search.outcomes import RowWatch, metrics_at
from slm_lab.studies.search.population import copy_checkpoints, delete_models
from slm_lab.studies.search.scheduler import Action, Decision, Scheduler
from slm_lab.studies.search.searcher import Searcher
from slm_lab.studies.search.space import spec_at
from slm_lab.studies.trial import TrialTask

METRIC = "final_return"
"""The maximised metric of a Trial."""
NO_ROOM = tuple(
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
)
"""Error texts of a full disk. Every later trial would fail with them too."""


@final
class Experiment(TrialRunner):
    """Runs the trials of a search. Logs every event before acting on it. The number of
    a trial determines its Sessions' seeds and its file names."""

    def __init__(
        self,
        spec: Spec,
        run_dir: RunDir,
        root_seed: int,
        searcher: Searcher,
        scheduler: Scheduler,
        pool: Pool,
        imports: tuple[str, ...] = (),
        keep: int | None = None,
    ) -> None:
        """Replays the event log in the folder. Raises UsageError if the log is
        damaged."""
        super().__init__(pool)
        self.spec = spec
        self.run_dir = run_dir
        self.num_trials = searcher.num_trials
        self.search_state = SearchState()
        self.has_strayed = False
        """Whether the replay proposed other params than the log has, as another version
        may."""
        self.problem: str | None = None
        """Why the search stopped by itself before its end."""
        self.root_seed = root_seed
        self._searcher = searcher
        self._scheduler = scheduler
        self.imports = imports
        self._keep = keep
        self._event_log = EventLog(run_dir.event_log_file)
        self._watches: dict[int, RowWatch] = {}
        self._pending: dict[int, Decision] = {}
        """Decisions not yet executed, by trial."""
        self._ending: set[int] = set()
        """Trials whose processes have ended but are not yet collected."""
        self._held: dict[int, float] = {}
        """Seconds to log of stopped trials that copy once their donor has saved, by
        trial."""
        self._specs: dict[int, Spec] = {}
        for event in self._event_log.read():
            self._replay(event)

    @override
    def run(self, on_tick: Callable[[], None]) -> None:
        """Raises LabError if the event log cannot be written."""
        try:
            # when the search was killed
            for state in self.search_state.of(Status.RUNNING):
                self._note(events.Interrupted(state.trial, 0.0))
            self._retry_failed()
            for decision in list(self._pending.values()):
                self._execute(decision)
            super().run(on_tick)
            if not self.stopping:
                # Left are paused trials that the scheduler never chose again.
                for state in self.search_state.of(Status.PAUSED, Status.WAITING):
                    # the end of another trial may have ended it
                    if not state.status.is_over:
                        self._end(state, Status.STOPPED, 0.0, state.metrics)
        finally:
            self._event_log.close()

    def _retry_failed(self) -> None:
        """Retries failed trials with restarts left, unless their rounds are over
        (`needs_all`)."""
        failed = (
            [] if self._scheduler.needs_all else self.search_state.of(Status.FAILED)
        )
        for state in failed:
            left = state.restarts < self.spec.meta.max_restart
            if left and state.has_begun and not state.would_repeat:
                self._note(events.Retried(state.trial, str(state.error), 0.0))

    def frame_of(self, trial: int) -> int:
        """Frames of a trial; 0 unless it runs."""
        process = self.pool.running.get(trial)
        if process is None:
            return 0
        return process.frame

    def spec_of(self, trial: int) -> Spec:
        """The spec of a trial. Raises SpecError if its params give no valid spec."""
        if trial not in self._specs:
            self._specs[trial] = spec_at(
                self.spec, self.search_state.trials[trial].params
            )
        return self._specs[trial]

    def note(self, event: Event) -> None:
        """Logs an event, and applies it to the state of the search."""
        self._event_log.write(event)
        self.search_state.apply(event)

    def _note(self, event: Event) -> list[Decision]:
        """Logs an event of a trial, and returns the scheduler's decisions."""
        self.note(event)
        return self._notify(event)

    def _notify(self, event: Event) -> list[Decision]:
        """Passes an event to the searcher and the scheduler, and returns the
        decisions."""
        match event:
            case events.Proposed(trial, params):
                self._scheduler.add(trial, params)
            case events.Began(trial):
                self._scheduler.begin(trial)
            case events.Reported(trial, frame, score):
                self._searcher.report(
                    trial, self.search_state.trials[trial].reports, score
                )
                return self._scheduler.report(trial, frame, score)
            case events.Ended(trial, score=score):
                self._searcher.end(trial, score)
                return self._scheduler.end(trial)
        return []

    def _replay(self, event: Event) -> None:
        """Applies a logged event; keeps only decisions that were not carried out
        since."""
        if isinstance(event, events.Proposed):
            params = self._searcher.propose(event.trial)
            self.has_strayed |= dict(params) != dict(event.params)
        self.search_state.apply(event)
        decisions = self._notify(event)
        self._pending |= {decision.trial: decision for decision in decisions}
        if isinstance(
            event, events.Began | events.Paused | events.Copied | events.Ended
        ):
            self._pending.pop(event.trial, None)

    @override
    def _fill(self) -> None:
        least = self._needs(self.spec)
        while not self.stopping and (
            self.pool.resources.has(least) or not self.pool.running
        ):
            trial = self._next()
            if trial is None or not self._begin(trial):
                return

    def _next(self) -> int | None:
        """The next trial: an interrupted one, else the scheduler's choice, else a new
        one."""
        for state in self.search_state.of(Status.WAITING):
            if state.has_begun and state.trial not in self._held:
                return state.trial
        while self._scheduler.needs_all and self._propose() is not None:
            pass
        waiting = self.search_state.of(Status.WAITING, Status.PAUSED)
        free = [state.trial for state in waiting if state.trial not in self._held]
        chosen = self._scheduler.choose(free)
        if chosen is None:
            return self._propose()
        return chosen

    def _propose(self) -> int | None:
        trial = len(self.search_state.trials)
        if trial >= self.num_trials:
            return None
        self._note(events.Proposed(trial, self._searcher.propose(trial)))
        return trial

    def _begin(self, trial: int) -> bool:
        """Begins a trial, or ends it as failed if it never can; False if it must wait
        for room."""
        state = self.search_state.trials[trial]
        try:
            spec = self.spec_of(trial)
            request = self._needs(spec)
            self.pool.resources.check(request)
            if not state.has_begun:
                check_spaces(f"trial {trial}", spec)
                check_machine(f"trial {trial}", spec)
                if self.run_dir.initial_file.is_file():
                    # imports torch
                    from slm_lab.records.init_from import check_initial

                    check_initial(self.run_dir, spec)
        except LabError as error:
            problems = error.problems if isinstance(error, SpecError) else [error]
            self._end(state, Status.FAILED, 0.0, {}, "; ".join(map(str, problems)))
            return True
        if not self.pool.resources.has(request):
            return False
        self._start(state, spec, request)
        return True

    def _needs(self, spec: Spec) -> Request:
        return request_of(
            spec, self.spec.meta.search_resources, self.pool.resources.cpus
        )

    def _start(self, state: TrialState, spec: Spec, request: Request) -> None:
        resume = state.has_begun
        if not resume or state.copies:
            write_json(
                self.run_dir.trial_spec_file(state.trial), {spec.name: spec.to_json()}
            )
        self._note(events.Began(state.trial))
        paths = [self.run_dir.session(state.trial, s).rows for s in spec.meta.writers]
        self._watches[state.trial] = RowWatch(paths, state.frame)
        task = TrialTask(
            spec=spec,
            run_dir=self.run_dir,
            root_seed=self.root_seed,
            trial=state.trial,
            resume=resume,
            imports=self.imports,
            at_once=self.spec.meta.search_scheduler is not None,
            one_of_many=True,
        )
        try:
            self.pool.start(
                state.trial, task, request, among_gpus=spec.meta.cluster is None
            )
        except LabError as error:
            self._note(events.Interrupted(state.trial, 0.0))
            self._stop_because(f"t{state.trial}: {error}")

    def _stop_because(self, problem: str) -> None:
        """Stops the search, which can be resumed."""
        self.problem = self.problem or problem
        self.stop()

    @override
    def _poll(self) -> None:
        for trial in list(self.pool.running):
            # else another trial's report has just ended it
            if trial in self.pool.running:
                self._read_reports(trial)
        ends = self.pool.ends()
        self._ending = {trial for trial, _, _ in ends}
        for trial, _, _ in ends:
            self._read_reports(trial)
        for trial, process, end in ends:
            self._ending.discard(trial)
            self._collect(self.search_state.trials[trial], process, end)

    def _read_reports(self, trial: int) -> None:
        """Handles a trial's new reports, up to the one that triggers a decision about
        it."""
        if trial in self._pending:
            return
        decisions: list[Decision] = []
        for frame, score in self._watches[trial].poll():
            decisions += self._note(events.Reported(trial, frame, score))
            if any(decision.trial == trial for decision in decisions):
                break
        for decision in decisions:
            self._execute(decision)

    def _execute(self, decision: Decision) -> None:
        state = self.search_state.trials[decision.trial]
        if state.status.is_over:
            return
        self._pending[decision.trial] = decision
        if decision.trial in self.pool.running:
            self.pool.stop(decision.trial)
        elif decision.trial not in self._ending:  # else `_collect` applies the decision
            self._apply(state, decision, 0.0, state.metrics)

    def _apply(
        self,
        state: TrialState,
        decision: Decision,
        seconds: float,
        metrics: Mapping[str, float | None],
    ) -> None:
        match decision.what:
            case Action.STOP:
                self._end(state, Status.STOPPED, seconds, metrics)
            case Action.PAUSE:
                del self._pending[state.trial]
                self._note(events.Paused(state.trial, seconds, metrics))
            case Action.COPY:
                self._copy(state, decision, seconds)

    def _copy(self, state: TrialState, decision: Decision, seconds: float) -> None:
        """Continues a trial from the donor's checkpoint, or from its own if the donor
        has none. Waits for a donor that is about to pause, because the pause saves what
        is copied."""
        if decision.donor in self._pending and decision.donor in self.pool.running:
            self._held[state.trial] = seconds
            return
        frame = copy_checkpoints(
            self.run_dir, self.spec_of(decision.donor), decision.donor, state.trial
        )
        donor = decision.donor
        if frame is None:
            donor = state.trial
        self._specs.pop(state.trial, None)
        del self._pending[state.trial]
        reached = frame
        if reached is None:
            reached = state.frame
        self._note(
            events.Copied(
                trial=state.trial,
                donor=donor,
                params=decision.params,
                frame=reached,
                seconds=seconds,
            )
        )

    def _collect(self, state: TrialState, process: TrialProcess, end: TrialEnd) -> None:
        """Handles the end of a trial's process: the trial's end, a pause or a copy."""
        decision = self._pending.get(state.trial)
        seconds = process.seconds
        metrics = end.metrics
        if end.ending is Ending.FINISHED:
            self._end(state, Status.FINISHED, seconds, metrics, frame=process.frame)
        elif end.ending is Ending.FAILED:
            self._fail(state, end, seconds)
        elif decision is not None:
            self._apply(state, decision, seconds, metrics)
        elif self.stopping:
            self._note(events.Interrupted(state.trial, seconds))
        else:
            outside = TrialEnd(
                Ending.FAILED, {}, "its process was stopped from outside"
            )
            self._fail(state, outside, seconds)
        for other in [
            trial for trial in self._held if self._pending[trial].donor == state.trial
        ]:
            held = self._held.pop(other)
            self._copy(self.search_state.trials[other], self._pending[other], held)

    def _fail(self, state: TrialState, end: TrialEnd, seconds: float) -> None:
        error = end.error or "unknown reason"
        if any(words in error for words in NO_ROOM) or error == f"its {LOST_SERVER}":
            self._stop_because(f"t{state.trial}: {error}")
        tries_left = state.restarts < self.spec.meta.max_restart
        if tries_left and not end.would_repeat and not self.stopping:
            self._note(events.Retried(state.trial, error, seconds))
            if state.trial in self._pending:
                self._apply(state, self._pending[state.trial], 0.0, state.metrics)
        elif self.stopping and not end.would_repeat:
            self._note(events.Interrupted(state.trial, seconds))
        else:
            self._end(
                state, Status.FAILED, seconds, {}, error, would_repeat=end.would_repeat
            )

    def _end(
        self,
        state: TrialState,
        status: Status,
        seconds: float,
        metrics: Mapping[str, float | None],
        error: str | None = None,
        frame: int | None = None,
        would_repeat: bool = False,
    ) -> None:
        self._pending.pop(state.trial, None)
        score = metrics.get(METRIC)
        spent = frame
        if spent is None:
            spent = state.frame
        if status is Status.STOPPED and state.score is not None:
            # The score at the compared frame, not at the later frame of the stop.
            score = state.score
            spec = self.spec_of(state.trial)
            metrics = metrics_at(self.run_dir, state.trial, spec, spent)
        result = spent, score, seconds, metrics, error, would_repeat
        decisions = self._note(events.Ended(state.trial, status, *result))
        if self._keep is not None:  # the checkpoints of the best ended trials only
            over = [each for each in self.search_state.ranked if each.status.is_over]
            for each in over[self._keep :]:
                delete_models(self.run_dir, each.trial)
        for decision in decisions:
            self._execute(decision)
