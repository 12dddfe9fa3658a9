"""The progress of a training or search in another process, read from its folder for a
live table; and the speed that such a table shows."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, final

import numpy as np

from slm_lab.core.errors import CheckpointError, UsageError
from slm_lab.core.recorded import finite, value_at
from slm_lab.metrics.reader import NO_ROWS, RowFile
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Interrupted, StudyState
from slm_lab.records.run_record import RunRecord, read_or_report
from slm_lab.session.status_board import Flow, Phase, SessionProgress
from slm_lab.spec.search import dimensions, num_trials
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.result import Ending, SessionResult

PHASES = {
    Ending.FINISHED: Phase.DONE,
    Ending.FAILED: Phase.FAILED,
    Ending.INTERRUPTED: Phase.STOPPED,
}

SPEED_WINDOW = 5.0
"""The minimum number of seconds over which the speed is averaged."""
SPEED_SHARE = 0.1
"""The minimum share of the run over which the speed is averaged, for a steady time
left."""
SPEED_PAUSES = 4
"""The minimum averaging window, in multiples of the longest pause between two frames:
an agent makes no steps while it learns for seconds, and unrolls of seconds arrive at
once."""


@final
class TrialProgress:
    """The progress of a Trial, as a StatusBoard has it, read from the files of its
    Sessions."""

    stage = ""  # no file has it

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._files = {
            session: RowFile(paths.rows) for session, paths in record.sessions.items()
        }
        self._rows = dict.fromkeys(self._files, NO_ROWS)
        self._results: dict[int, SessionResult] = {}
        self.stop_requested = False
        self.is_training = True

    @property
    def reasons(self) -> dict[int, str]:
        """Why Sessions failed."""
        return {
            session: result.error
            for session, result in self._results.items()
            if result.error is not None
        }

    def look(self) -> bool:
        """Reads the new rows, and how the Sessions have ended; returns whether it
        trains. Raises UsageError for damaged files."""
        self._record = _look_again(self._record)
        self.is_training = self._record.is_training
        for session, file in self._files.items():
            self._rows[session] = read_or_report(file)
        if not self.is_training:
            for session in self._files:
                self._record.rows(session)  # compares them with the checkpoint
            results = self._record.results
            self._results = {result.session: result for result in results}
        return self.is_training

    def read(self, session: int) -> SessionProgress:
        """Its last row. An actor, which writes none, has only a phase."""
        frame = self._last(session, "frame")
        recent_return = self._last(session, "recent_return")
        if recent_return is None:
            recent_return = self._last(session, "final_return")
        return SessionProgress(
            phase=self._phase(session, has_rows=frame is not None),
            frame=int(frame or 0),
            restarts=0,
            fps=self._last(session, "fps"),
            recent_return=recent_return,
            best=self._best(session),
        )

    def flow(self, session: int) -> Flow | None:
        """The numbers of a learner; None without one."""
        numbers = {column: self._last(session, column) for column in Flow._fields}
        if numbers["policy_lag"] is None:
            return None
        known = {
            column: np.nan if number is None else number
            for column, number in numbers.items()
        }
        return Flow(**known)

    def _phase(self, session: int, has_rows: bool) -> Phase:
        if self.is_training:
            writes_rows = session in self._rows
            is_starting = writes_rows and not has_rows
            if is_starting:
                return Phase.STARTING
            return Phase.RUNNING
        result = self._results.get(session)
        if result is None:
            return Phase.STOPPED
        return PHASES[result.ending]

    def _best(self, session: int) -> float | None:
        rows = self._rows.get(session, NO_ROWS)
        if "recent_return" not in rows.columns or not rows.has_values("recent_return"):
            return None
        return float(np.nanmax(rows["recent_return"]))

    def _last(self, session: int, column: str) -> float | None:
        rows = self._rows.get(session, NO_ROWS)
        if not len(rows) or column not in rows.columns:
            return None
        return finite(float(rows[column][-1]))


@final
class SearchProgress:
    """The progress of a search, as a Study has it, read from its folder."""

    stopping = False

    def __init__(self, record: RunRecord) -> None:
        """Raises UsageError for a damaged event log, SpecError for a damaged spec."""
        self._record = record
        spec = record.spec
        self.study_state = StudyState()
        self.num_trials = num_trials(
            list(dimensions(value_at(spec, "search", {}))),
            value_at(spec, "meta.max_trial", 1),
        )

    def look(self) -> bool:
        """Reads the event log; returns whether the search runs. Raises UsageError for a
        damaged one."""
        self._record = _look_again(self._record)
        is_running = self._record.is_training
        self.study_state = self._record.study_state
        if not is_running:
            for state in self.study_state.of(Status.RUNNING):  # it was killed
                self.study_state.apply(Interrupted(state.trial, 0.0))
        return is_running

    def frame_of(self, trial: int) -> int:
        """Frames of a trial at its last report."""
        return self.study_state.trials[trial].frame


def _look_again(record: RunRecord) -> RunRecord:
    """A new record of the same run. Raises UsageError for a folder that is gone."""
    if not record.run_dir.spec_file.exists():
        raise UsageError(f"{record.folder} is gone: it was deleted or renamed")
    return RunRecord(record.run_dir, None if record.is_search else record.trial)


@final
class RecentSpeed:
    """The recent frames per second of a running Session."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._longest_pause = 0.0

    def update(self, frame: int, now: float) -> float | None:
        """Records the frame at the time `now`; returns the speed, or None before any
        progress. Pauses count, but the one since the last frames only once it exceeds
        the mean pause."""
        self._began = now if self._began is None else self._began
        if self._seen:
            self._longest_pause = max(self._longest_pause, now - self._seen[-1][0])
        if not self._seen or frame != self._seen[-1][1]:
            self._seen.append((now, frame))
        window = max(
            SPEED_WINDOW,
            SPEED_SHARE * (now - self._began),
            SPEED_PAUSES * self._longest_pause,
        )
        while len(self._seen) > 2 and self._seen[1][0] < now - window:
            self._seen.popleft()
        (before, first) = self._seen[0]
        (last, _) = self._seen[-1]
        if frame == first:
            return None
        pause = (last - before) / (len(self._seen) - 1)
        return (frame - first) / (max(last, now - pause) - before)


def read_news(trial: RunRecord) -> Iterator[tuple[Any, ...] | None]:
    """The new rows and checkpoints of a Trial, each as an event with its arguments,
    then None; and so on."""
    sessions = trial.sessions
    followers = {session: trial.new_rows(session) for session in sessions}
    serials = dict.fromkeys(sessions, -1)
    while True:
        for session, follower in followers.items():
            for row in follower.read():
                yield "on_row", {"session": session, **row}
        for session, paths in sessions.items():
            saved = None
            with suppress(CheckpointError):
                saved = read_manifest(paths.manifest)
            if saved is not None and saved.serial != serials[session]:
                serials[session] = saved.serial
                yield "on_checkpoint", session, saved.frame
        yield None
