"""A study: more than one training.

An `Agenda` says which trainings come next, and what each of them trains. The `Study`
runs them in `Slots`. It logs every event before it acts on it, so that a
stopped or killed study resumes exactly."""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

from slm_lab.core.errors import LabError, SpecError
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.parallel.processes import LOST_SERVER
from slm_lab.records import event_log as events
from slm_lab.records.event_log import Event, EventLog, StudyState
from slm_lab.storage.result import Ending
from slm_lab.studies.pool import Request, Slots, TrialEnd
from slm_lab.studies.trial import TrialTask

METRIC = "final_return"
"""The metric of a training that is its score."""
DISK_FULL = tuple(
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
)
"""Error texts of a full disk. Every later training would fail with them too."""


class Intervention(StrEnum):
    """What a study does to a training before its end."""

    STOP = "stop"
    PAUSE = "pause"
    COPY = "copy"


@final
@dataclass(frozen=True)
class Decision:
    """Stops a training, pauses it (saving its state), or replaces it by a copy. A copy
    continues from the weights of `donor` with the values `params`."""

    trial: int
    what: Intervention
    donor: int = -1
    params: Params = field(default_factory=dict)


class Agenda(ABC):
    """Which trainings a study runs. They are numbered from 0.

    It is a deterministic function of its seed and of the events that `notify` gets. A
    resumed study replays these."""

    num_trials: int
    """The most trainings that it proposes."""
    max_restart: int = 0
    """How often a training that failed is retried."""
    redoes_failed: bool = False
    """Whether a resumed study trains anew all that have failed."""
    needs_all: bool = False
    """Whether all are proposed before the first begins."""
    smallest_request: Request = Request(cpu=1.0, gpu=0.0)
    """The least that a training occupies. None is proposed without room for it."""

    def __init__(self) -> None:
        self.study_state = StudyState()
        """The trainings after all events so far; the study applies the events."""

    @abstractmethod
    def propose(self, trial: int) -> Params | None:
        """What is particular to the next training; None if none is to follow yet. A
        replay repeats only the calls that returned something. So a call that returns
        None must use up no random numbers."""

    @abstractmethod
    def task(self, state: TrialState) -> TrialTask:
        """What a training trains, now that there is room for it. Raises LabError if it
        cannot be trained."""

    def label(self, trial: int) -> str:
        """The name of a training in messages."""
        return f"t{trial}"

    def request(self, state: TrialState) -> Request:
        """What a training occupies. Raises LabError as `task`."""
        return self.smallest_request

    def choose(self, waiting: Sequence[int]) -> int | None:
        """The waiting or paused training to run next; None if none may run yet."""
        return next(iter(waiting), None)

    def notify(self, event: Event) -> list[Decision]:
        """Receives each event once it is logged or replayed."""
        return []

    def reports(self, trial: int) -> Sequence[tuple[int, float]]:
        """New scores of a running training, each with its frame."""
        return ()

    def metrics_at(self, trial: int, frame: int) -> Mapping[str, float | None]:
        """The metrics that a training which was stopped early had at `frame`."""
        return self.study_state.trials[trial].metrics

    def copy(self, donor: int, trial: int) -> int | None:
        """Gives a training the checkpoint of `donor`; returns its frame, or None
        without one."""
        return None

    def conclude(self, state: TrialState) -> None:
        """A training is over; not called by a replay. It may raise LabError, which ends
        the study."""


@final
class Study:
    """Runs the trainings of an agenda. A study without a log cannot be resumed."""

    def __init__(
        self, agenda: Agenda, slots: Slots, log: EventLog | None = None
    ) -> None:
        """Replays the log. Raises UsageError if it is damaged."""
        self.agenda = agenda
        self.slots = slots
        self.study_state = agenda.study_state
        self.stopping = False
        self.has_strayed = False
        """Whether the replay proposed other params than the log has, as another version
        may."""
        self.problem: str | None = None
        """Why the study stopped by itself before its end."""
        self._log = log
        self._pending: dict[int, Decision] = {}
        """Decisions not yet executed, by trial."""
        self._ending: set[int] = set()
        """Trials whose processes have ended but are not yet collected."""
        self._held: dict[int, float] = {}
        """The seconds that a stopped trial ran, by trial. Such a trial becomes a copy
        once its donor has saved."""
        if log is not None:
            for event in log.read():
                self._replay(event)

    @property
    def num_trials(self) -> int:
        """The most trainings that its agenda proposes."""
        return self.agenda.num_trials

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Runs trainings until none is left, or until `stop` is called. Calls `on_tick`
        a few times a second, or after each training in this process. Raises LabError if
        the log cannot be written. Leaves no process running."""
        try:
            # when the study was killed
            for state in self.study_state.of(Status.RUNNING):
                self._announce(events.Interrupted(state.trial, 0.0))
            self._retry_failed()
            for decision in list(self._pending.values()):
                self._execute(decision)
            self._run_all(on_tick)
            if not self.stopping:
                # Left are paused trials that the agenda never chose again.
                for state in self.study_state.of(Status.PAUSED, Status.WAITING):
                    # the end of another trial may have ended it
                    if not state.status.is_over:
                        self._end(state, Status.STOPPED, _interrupted_end(state))
        finally:
            self.slots.kill_all()
            if self._log is not None:
                self._log.close()

    def stop(self) -> None:
        """Makes running trainings save and end, and starts no others."""
        self.stopping = True
        self.slots.stop_all()

    def frame_of(self, trial: int) -> int:
        """Frames of a training; 0 unless it runs."""
        return self.slots.frame_of(trial)

    def record(self, event: Event) -> None:
        """Logs an event, and applies it to the state."""
        if self._log is not None:
            self._log.write(event)
        self.study_state.apply(event)

    def _run_all(self, on_tick: Callable[[], None]) -> None:
        while True:
            if self.stopping:
                # again: a trial may have started after the request
                self.slots.stop_all()
            else:
                self._fill()
            if not self.slots.running:
                return
            self.slots.wait()
            self._poll()
            on_tick()

    def _retry_failed(self) -> None:
        """Retries failed trials, unless their rounds are over (`needs_all`). It retries
        trials with restarts left, or all if the agenda redoes them."""
        failed = self.study_state.of(Status.FAILED)
        if self.agenda.needs_all:
            failed = []
        for state in failed:
            tries_left = state.restarts < self.agenda.max_restart
            may_retry = tries_left and state.has_begun and not state.would_repeat
            if may_retry or self.agenda.redoes_failed:
                self._announce(events.Retried(state.trial, str(state.error), 0.0))

    def _announce(self, event: Event) -> list[Decision]:
        """Records an event, and tells the agenda; returns the agenda's decisions."""
        self.record(event)
        return self.agenda.notify(event)

    def _replay(self, event: Event) -> None:
        """Applies a logged event; keeps only decisions that were not carried out
        since."""
        if isinstance(event, events.Proposed):
            params = self.agenda.propose(event.trial)
            self.has_strayed |= dict(params or {}) != dict(event.params)
        self.study_state.apply(event)
        decisions = self.agenda.notify(event)
        self._pending |= {decision.trial: decision for decision in decisions}
        if isinstance(
            event, events.Began | events.Paused | events.Copied | events.Ended
        ):
            self._pending.pop(event.trial, None)

    def _fill(self) -> None:
        while not self.stopping and self._has_room():
            trial = self._next()
            if trial is None or not self._begin(trial):
                return

    def _has_room(self) -> bool:
        """Whether the smallest training fits. One that is too large for the machine
        fails once nothing runs."""
        if not self.slots.running:
            return True
        return self.slots.resources.has(self.agenda.smallest_request)

    def _next(self) -> int | None:
        """The next trial: an interrupted one, else the agenda's choice, else a new
        one."""
        for state in self.study_state.of(Status.WAITING):
            if state.has_begun and state.trial not in self._held:
                return state.trial
        while self.agenda.needs_all and self._propose() is not None:
            pass
        waiting = self.study_state.of(Status.WAITING, Status.PAUSED)
        free = [state.trial for state in waiting if state.trial not in self._held]
        chosen = self.agenda.choose(free)
        if chosen is None:
            return self._propose()
        return chosen

    def _propose(self) -> int | None:
        trial = len(self.study_state.trials)
        if trial >= self.agenda.num_trials:
            return None
        params = self.agenda.propose(trial)
        if params is None:
            return None
        self._announce(events.Proposed(trial, params))
        return trial

    def _begin(self, trial: int) -> bool:
        """Begins a trial, or ends it as failed if it never can; False if it must wait
        for room."""
        state = self.study_state.trials[trial]
        try:
            request = self.agenda.request(state)
            self.slots.resources.check(request)
            if not self.slots.resources.has(request):
                return False
            task = self.agenda.task(state)
        except LabError as error:
            problems = error.problems if isinstance(error, SpecError) else [error]
            why = "; ".join(map(str, problems))
            self._end(state, Status.FAILED, TrialEnd(Ending.FAILED, {}, why))
            return True
        self._announce(events.Began(trial, task.folder))
        try:
            self.slots.start(trial, task, request)
        except LabError as error:
            self._announce(events.Interrupted(trial, 0.0))
            self._stop_for_error(trial, str(error))
        return True

    def _stop_for_error(self, trial: int, error: str) -> None:
        """Stops the study, which can be resumed."""
        self.problem = self.problem or f"{self.agenda.label(trial)}: {error}"
        self.stop()

    def _poll(self) -> None:
        """Handles what trials report, and their ends."""
        for trial in list(self.slots.running):
            # else another trial's report has just ended it
            if trial in self.slots.running:
                self._read_reports(trial)
        ends = self.slots.take_ends()
        self._ending = set(ends)
        for trial in ends:
            self._read_reports(trial)
        for trial, end in ends.items():
            self._ending.discard(trial)
            self._collect(self.study_state.trials[trial], end)

    def _read_reports(self, trial: int) -> None:
        """Handles a trial's new reports, up to the one that triggers a decision about
        it."""
        if trial in self._pending:
            return
        decisions: list[Decision] = []
        for frame, score in self.agenda.reports(trial):
            decisions += self._announce(events.Reported(trial, frame, score))
            if any(decision.trial == trial for decision in decisions):
                break
        for decision in decisions:
            self._execute(decision)

    def _execute(self, decision: Decision) -> None:
        state = self.study_state.trials[decision.trial]
        if state.status.is_over:
            return
        self._pending[decision.trial] = decision
        if decision.trial in self.slots.running:
            self.slots.stop(decision.trial)
        elif decision.trial not in self._ending:  # else `_collect` applies the decision
            self._apply(state, decision, _interrupted_end(state))

    def _apply(self, state: TrialState, decision: Decision, end: TrialEnd) -> None:
        match decision.what:
            case Intervention.STOP:
                self._end(state, Status.STOPPED, end)
            case Intervention.PAUSE:
                del self._pending[state.trial]
                self._announce(events.Paused(state.trial, end.seconds, end.metrics))
            case Intervention.COPY:
                self._copy(state, decision, end.seconds)

    def _copy(self, state: TrialState, decision: Decision, seconds: float) -> None:
        """Continues a trial from the donor's checkpoint, or from its own if the donor
        has none. Waits for a donor that is about to pause, because the pause saves what
        is copied."""
        donor = decision.donor
        if donor in self._pending and donor in self.slots.running:
            self._held[state.trial] = seconds
            return
        frame = self.agenda.copy(donor, state.trial)
        if frame is None:
            donor = state.trial
            frame = state.frame
        del self._pending[state.trial]
        self._announce(
            events.Copied(
                trial=state.trial,
                donor=donor,
                params=decision.params,
                frame=frame,
                seconds=seconds,
            )
        )

    def _collect(self, state: TrialState, end: TrialEnd) -> None:
        """Handles the end of a trial's process: the trial's end, a pause or a copy."""
        decision = self._pending.get(state.trial)
        if end.ending is Ending.FINISHED:
            self._end(state, Status.FINISHED, end)
        elif end.ending is Ending.FAILED:
            self._fail(state, end)
        elif decision is not None:
            self._apply(state, decision, end)
        elif self.stopping:
            self._announce(events.Interrupted(state.trial, end.seconds))
        else:
            outside = "its process was stopped from outside"
            self._fail(state, end._replace(error=outside))
        for other in [
            trial for trial in self._held if self._pending[trial].donor == state.trial
        ]:
            held = self._held.pop(other)
            self._copy(self.study_state.trials[other], self._pending[other], held)

    def _fail(self, state: TrialState, end: TrialEnd) -> None:
        error = end.error or "unknown reason"
        if any(words in error for words in DISK_FULL) or error == f"its {LOST_SERVER}":
            self._stop_for_error(state.trial, error)
        tries_left = state.restarts < self.agenda.max_restart
        if tries_left and not end.would_repeat and not self.stopping:
            self._announce(events.Retried(state.trial, error, end.seconds))
            if state.trial in self._pending:
                self._apply(state, self._pending[state.trial], _interrupted_end(state))
        elif self.stopping and not end.would_repeat:
            self._announce(events.Interrupted(state.trial, end.seconds))
        else:
            why = end._replace(metrics={}, error=error)
            self._end(state, Status.FAILED, why)

    def _end(self, state: TrialState, status: Status, end: TrialEnd) -> None:
        self._pending.pop(state.trial, None)
        frame = state.frame
        score = end.metrics.get(METRIC)
        metrics = end.metrics
        if status is Status.FINISHED:
            frame = end.frame
        if status is Status.STOPPED and state.score is not None:
            # The score at the compared frame, not at the later frame of the stop.
            score = state.score
            metrics = self.agenda.metrics_at(state.trial, frame)
        decisions = self._announce(
            events.Ended(
                trial=state.trial,
                status=status,
                frame=frame,
                score=score,
                seconds=end.seconds,
                metrics=metrics,
                error=end.error,
                would_repeat=end.would_repeat,
            )
        )
        self.agenda.conclude(state)
        for decision in decisions:
            self._execute(decision)


def _interrupted_end(state: TrialState) -> TrialEnd:
    """The end of a trial whose process ended before."""
    return TrialEnd(Ending.INTERRUPTED, state.metrics)
