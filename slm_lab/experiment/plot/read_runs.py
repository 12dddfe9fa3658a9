"""Reads the rows so far of a Trial's trainings."""

from dataclasses import dataclass
from typing import final

import numpy as np

from slm_lab.analysis.figure.axis import EVAL_RETURNS, Axis, line
from slm_lab.analysis.figure.grid import Line, mean_lines
from slm_lab.analysis.overlay.overlay import x_axis
from slm_lab.experiment.plot.find_runs import FoundTrial
from slm_lab.storage.intact import read_saved_rows


@final
@dataclass(frozen=True, eq=False)
class ReadTraining:
    """One seed of a Trial, from the rows of its workers."""

    line: Line
    """The mean of the workers, with x in the unit of its column."""
    final_return: float
    """Mean over the workers."""
    frames: float
    """Of all workers, at the end."""
    seconds: float


@final
@dataclass(frozen=True, eq=False)
class ReadTrial:
    """A Trial, with its trainings that have values."""

    found: FoundTrial
    trainings: tuple[ReadTraining, ...]

    @property
    def final_return(self) -> float:
        """Mean over its trainings."""
        return float(np.mean([each.final_return for each in self.trainings]))


def read_trial(found: FoundTrial, x: str, y: Axis) -> ReadTrial:
    """The trainings with values so far. Raises UsageError for a damaged file."""
    trainings = []
    for sessions in found.meta.trainings:
        writers = [session for session in sessions if session in found.meta.writers]
        files = [found.run_dir.session(found.trial, session) for session in writers]
        rows = [
            read_saved_rows(each, each.eval_rows if y is EVAL_RETURNS else each.rows)
            for each in files
        ]
        lines = [line(each, x_axis(x, 0.0), y) for each in rows]
        (mean,) = mean_lines(lines, [0] * len(lines)) or (Line(np.empty(0), np.empty(0)),)
        if mean.x.size:
            trainings.append(
                ReadTraining(
                    mean,
                    float(np.nanmean([each["final_return"][-1] for each in rows if len(each)])),
                    max(float(each["total_frame"][-1]) for each in rows if len(each)),
                    max(float(each["wall_t"][-1]) for each in rows if len(each)),
                )
            )
    return ReadTrial(found, tuple(trainings))
