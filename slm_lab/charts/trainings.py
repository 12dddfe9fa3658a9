"""The rows of Trials as curves."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from slm_lab.charts.axis import EVAL_RETURNS, Axis, line, x_axis
from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary
from slm_lab.metrics.lines import Line, mean_lines
from slm_lab.records.run_record import RunRecord


class ReadTraining(NamedTuple):
    """One seed of a Trial, from the rows of its workers."""

    line: Line
    """The mean of the workers, with x in the unit of its column."""
    final_return: float
    """Mean over the workers."""
    frames: float
    """The frames of all workers at the end."""
    seconds: float


class ReadTrial(NamedTuple):
    """A Trial, with its trainings that have values."""

    record: RunRecord
    trainings: tuple[ReadTraining, ...]

    @property
    def env(self) -> str:
        """The name of its environment."""
        return self.record.env

    @property
    def final_return(self) -> float:
        """Mean over its trainings of which episodes have ended; −∞ without any."""
        known = [
            x for training in self.trainings if np.isfinite(x := training.final_return)
        ]
        if known:
            return float(np.mean(known))
        return -np.inf

    def scaled(self, zero: float, unit: float) -> "ReadTrial":
        """The Trial with values less `zero`, in units of `unit`."""
        trainings = [
            training._replace(
                line=Line(training.line.x, (training.line.y - zero) / unit),
                final_return=(training.final_return - zero) / unit,
            )
            for training in self.trainings
        ]
        return self._replace(trainings=tuple(trainings))


def read_trial(record: RunRecord, x: str, y: Axis) -> ReadTrial:
    """The trainings with values so far. Raises UsageError for a damaged file."""
    trainings = []
    read = record.rows
    if y.file == EVAL_RETURNS.file:
        read = record.evaluation_rows
    for sessions in record.meta.trainings:
        rows = [read(session) for session in record.sessions if session in sessions]
        lines = [line(session_rows, x_axis(x, 0.0), y) for session_rows in rows]
        (mean,) = mean_lines(lines, [0] * len(lines)) or (
            Line(np.empty(0), np.empty(0)),
        )
        if mean.x.size:
            finals, frames, seconds = (
                [
                    float(session_rows[column][-1])
                    for session_rows in rows
                    if len(session_rows)
                ]
                for column in ("final_return", "total_frame", "wall_t")
            )
            known = [value for value in finals if np.isfinite(value)]
            ends = float(np.mean(known)) if known else np.nan, max(frames), max(seconds)
            trainings.append(ReadTraining(mean, *ends))
    return ReadTrial(record, tuple(trainings))


def read_trials(
    records: Mapping[str, RunRecord], x: str, y: Axis
) -> tuple[list[ReadTrial], list[str]]:
    """The Trials with values, and why others, by name, have none."""
    trials = []
    problems = []
    for name, record in records.items():
        try:
            trial = read_trial(record, x, y)
        except LabError as error:
            problems.append(f"{name}: {error_summary(str(error))}")
            continue
        if trial.trainings:
            trials.append(trial)
        else:
            problems.append(f"{name}: no values of {y.label} yet")
    return trials, problems
