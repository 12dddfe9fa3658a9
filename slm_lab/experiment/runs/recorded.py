"""What a running Trial or search shows, read from its folder: for `slm-lab watch`."""

from typing import final

import numpy as np

from slm_lab.core.errors import UsageError
from slm_lab.experiment.doctor.case import Course, read_case
from slm_lab.experiment.plot.trials import FoundTrial
from slm_lab.experiment.search.outcomes import read_search
from slm_lab.metrics.reader import NO_ROWS, RowFollower
from slm_lab.metrics.trial_state import Status
from slm_lab.session.status_board import Flow, Phase, SessionProgress
from slm_lab.spec.read import read_file
from slm_lab.spec.search import num_trials
from slm_lab.storage.event_log import Interrupted, SearchState
from slm_lab.storage.lock import is_locked
from slm_lab.storage.maybe_damaged import value_at
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RunDir

PHASES = {
    Ending.FINISHED: Phase.DONE,
    Ending.FAILED: Phase.FAILED,
    Ending.INTERRUPTED: Phase.STOPPED,
}


@final
class RecordedTrial:
    """What a StatusBoard has of a Trial, read from the files of its Sessions."""

    stage = ""  # no file has it

    def __init__(self, trial: FoundTrial) -> None:
        self._trial = trial
        self._files = {s: RowFollower(paths.rows) for s, paths in trial.paths.items()}
        self._rows = dict.fromkeys(self._files, NO_ROWS)
        self._ends: dict[int, SessionResult] = {}
        self.stop_requested = False
        self.is_training = True

    @property
    def reasons(self) -> dict[int, str]:
        """Why Sessions failed."""
        return {
            session: end.error
            for session, end in self._ends.items()
            if end.error is not None
        }

    def look(self) -> bool:
        """Reads the new rows, and how the Sessions have ended; returns whether it
        trains."""
        self.is_training = _is_training(self._trial.run_dir)
        for session, file in self._files.items():
            try:
                self._rows[session] = file.read()
            except (OSError, ValueError) as error:
                raise UsageError(f"{file.path} cannot be read: {error}") from None
        if not self.is_training:
            self._ends = {end.session: end for end in read_case(self._trial).ends}
        return self.is_training

    def read(self, session: int) -> SessionProgress:
        """Its last row. An actor, which writes none, has only a phase."""
        end, frame = self._ends.get(session), self._last(session, "frame")
        phase = Phase.STOPPED if end is None else PHASES[end.ending]
        if self.is_training:
            phase = (
                Phase.STARTING
                if frame is None and session in self._rows
                else Phase.RUNNING
            )
        if (result := self._last(session, "recent_return")) is None:
            result = self._last(session, "final_return")
        returns = Course(self._rows.get(session, NO_ROWS), {}).values("recent_return")
        best = float(returns.max()) if len(returns) else None
        return SessionProgress(
            phase, int(frame or 0), 0, self._last(session, "fps"), result, best
        )

    def flow(self, session: int) -> Flow | None:
        """The numbers of a learner; None without one."""
        known = [self._last(session, column) for column in Flow._fields]
        return (
            None
            if known[1] is None
            else Flow(*(np.nan if n is None else n for n in known))
        )

    def _last(self, session: int, column: str) -> float | None:
        values = Course(self._rows.get(session, NO_ROWS), {}).column(column)[-1:]
        return float(values[0]) if np.isfinite(values).any() else None


@final
class RecordedSearch:
    """What an Experiment has of a search, read from its record."""

    stopping = False

    def __init__(self, run_dir: RunDir) -> None:
        """Raises UsageError for a damaged record, SpecError for a damaged spec."""
        self._run_dir = run_dir
        self.summary = read_search(run_dir)
        self.search_state = SearchState()
        spec = read_file(run_dir.spec_file)[self.summary.name]
        self.num_trials = num_trials(
            self.summary.variables, value_at(spec, "meta.max_trial", 1)
        )

    def look(self) -> bool:
        """Reads the event log; returns whether the search runs."""
        is_running = _is_training(self._run_dir)
        self.search_state = SearchState.from_log(self._run_dir.event_log_file)
        for state in () if is_running else self.search_state.of(Status.RUNNING):
            self.search_state.apply(Interrupted(state.trial, 0.0))  # it was killed
        return is_running

    def frame_of(self, trial: int) -> int:
        """Frames of a trial at its last report."""
        return self.search_state.trials[trial].frame


def _is_training(run_dir: RunDir) -> bool:
    """Whether a process trains it. Raises UsageError for a folder that is gone."""
    if not run_dir.spec_file.exists():
        raise UsageError(f"{run_dir.root} is gone: it was deleted or renamed")
    return is_locked(run_dir.root)
