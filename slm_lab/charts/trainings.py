"""The rows of Trials as curves."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.charts.axis import EVAL_RETURNS, Axis, line, x_axis
from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary
from slm_lab.metrics.lines import Line, mean_lines
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.trial_metrics import training_return
from slm_lab.records.run_record import RunRecord


class TrainingCurve(NamedTuple):
    """The curve of one seed of a Trial, from the rows of its workers."""

    line: Line
    """The mean of the workers, with x in the unit of its column."""
    final_return: float
    """Mean over the workers."""
    frames: float
    """The frames of all workers at the end."""
    seconds: float
    number: int = 0
    """Its place among the trainings of the Trial."""


class TrainingEnd(NamedTuple):
    """The end of one training: the mean over its workers, NaN if no episode has ended;
    and the frames of all."""

    final_return: float
    frames: float
    seconds: float


def training_end(rows: Sequence[Rows]) -> TrainingEnd:
    """The end of a training, from the rows of its workers."""
    begun = [worker for worker in rows if len(worker)]
    return TrainingEnd(
        final_return=training_return(rows),
        frames=max((float(w["total_frame"][-1]) for w in begun), default=0.0),
        seconds=max((float(w["wall_t"][-1]) for w in begun), default=0.0),
    )


class TrialCurves(NamedTuple):
    """A Trial, with the curves of its trainings that have values."""

    record: RunRecord
    trainings: tuple[TrainingCurve, ...]

    @property
    def env(self) -> str:
        """The name of its environment."""
        return self.record.env

    @property
    def final_return(self) -> float:
        """Mean over its trainings of which episodes have ended; −∞ without any."""
        finals = [training.final_return for training in self.trainings]
        known = [final for final in finals if np.isfinite(final)]
        return float(np.mean(known or [-np.inf]))

    def scaled(self, zero: float, unit: float) -> "TrialCurves":
        """The Trial with values less `zero`, in units of `unit`."""
        trainings = [
            training._replace(
                line=Line(training.line.x, (training.line.y - zero) / unit),
                final_return=(training.final_return - zero) / unit,
            )
            for training in self.trainings
        ]
        return self._replace(trainings=tuple(trainings))

    @property
    def pair_keys(self) -> list[tuple[str, int]]:
        """The key that each training shares with the other of its pair. It is the run
        that both come from, and their number in it. A fork comes from the run that it
        has left."""
        fork = self.record.forked_from
        run = self.record.folder.resolve().name if fork is None else fork.run
        return [(run, training.number) for training in self.trainings]


def read_trial(record: RunRecord, x: str, y: Axis) -> TrialCurves:
    """The trainings with values so far. Raises UsageError for a damaged file."""
    trainings = []
    read = record.rows
    if y.file == EVAL_RETURNS.file:
        read = record.evaluation_rows
    for number, sessions in enumerate(record.meta.trainings):
        rows = [read(session) for session in record.sessions if session in sessions]
        lines = [line(session_rows, x_axis(x, 0.0), y) for session_rows in rows]
        for mean in mean_lines(lines, [0] * len(lines)):
            if mean.x.size:
                branch = _cut_at_fork(record, mean, rows, x)
                trainings.append(
                    TrainingCurve(branch, *training_end(rows), number=number)
                )
    return TrialCurves(record, tuple(trainings))


def _cut_at_fork(record: RunRecord, whole: Line, rows: Sequence[Rows], x: str) -> Line:
    """The line of a fork from the point at which it leaves its parent: earlier rows are
    the parent's. The same line of a run that is no fork, and of a fork without later
    rows."""
    fork = record.forked_from
    if fork is None:
        return whole
    column = x_axis(x, 0.0).column
    begins = [
        float(table[column][table["total_frame"] <= fork.frame].max(initial=-np.inf))
        for table in rows
        if len(table)
    ]
    later = whole.x >= max(begins)
    if np.count_nonzero(later) < 2:
        return whole
    return Line(whole.x[later], whole.y[later])


def read_trials(
    records: Mapping[str, RunRecord], x: str, y: Axis
) -> tuple[list[TrialCurves], list[str]]:
    """The Trials with values, and why others, by name, have none."""
    trials = []
    problems = []
    for name, record in records.items():
        try:
            trial = read_trial(record, x, y)
        except LabError as error:
            problems.append(f"{name}: {error_summary(error)}")
            continue
        if trial.trainings:
            trials.append(trial)
        else:
            problems.append(f"{name}: no values of {y.label} yet")
    return trials, problems
