"""What a comparison measures, over the frames of all workers: curves, speeds, times to a return."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from slm_lab.analysis.figure.axis import Axis, episode_counts
from slm_lab.analysis.figure.grid import Line, trailing_mean
from slm_lab.core.types import FloatArray
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.recent import WINDOW_SHARE

BASELINE = "false"
"""The word of one process that trains alone."""
CROWDED = "†"
"""Marks more workers than cores."""

_NONE = np.empty(0)


class Variant(NamedTuple):
    """One way of training: the word in `meta.distributed`, and how many workers."""

    mode: str
    workers: int
    crowded: bool = False
    """Whether there are more workers than cores."""
    has_learner: bool = False
    """Whether the workers are actors, and one process more learns."""

    @property
    def label(self) -> str:
        """How graphs and tables call it."""
        if self.mode == BASELINE:
            return "one process"
        return f"{self.mode} × {self.workers}{f' {CROWDED}' if self.crowded else ''}"


class Training(NamedTuple):
    """One training, over the total frames of all its workers; every array is (P,).

    `total_frame` rises; `episode_return` is the mean over the episodes of the last `window` total
    frames, in rows.
    `frame` (per process), `wall_t` and `cpu_t` (s; of all processes, NaN where it was not counted)
    never fall.
    """

    total_frame: FloatArray
    episode_return: FloatArray
    frame: FloatArray
    wall_t: FloatArray
    cpu_t: FloatArray
    window: float
    frames: float
    """Total, at the end."""
    seconds: float
    """Until then."""
    final_return: float | None
    """Mean over the workers."""

    @property
    def frames_per_s(self) -> float | None:
        """Total frames over training time."""
        return self.frames / self.seconds if self.seconds > 0 else None

    @property
    def cores_used(self) -> float | None:
        """CPU time over training time: below the number of workers if some wait for each other, or
        other programs use the cores."""
        known = self.wall_t.size > 0 and np.isfinite(self.cpu_t[-1]) and self.wall_t[-1] > 0
        return float(self.cpu_t[-1] / self.wall_t[-1]) if known else None

    def clock(self, column: str) -> FloatArray:
        """(P,): the clock of this column at each of `total_frame`."""
        clock: FloatArray = self._asdict()[column]
        return clock

    def reached(self, threshold: float) -> int | None:
        """Where `episode_return` first reaches `threshold`, from the first whole window on."""
        there = (self.total_frame >= self.window) & (self.episode_return >= threshold)
        return int(there.argmax()) if there.any() else None


def window_of(max_frame: int, log_frequency: int, most_workers: int) -> float:
    """Total frames over which the returns of all variants are averaged. Workers that each write a
    row every `log_frequency` frames write them in bunches, so it holds one bunch at least."""
    bunch = float(log_frequency * most_workers)
    return min(max(WINDOW_SHARE * max_frame, bunch), float(max_frame))


def training_of(rows: Sequence[Rows], window: float, actors: int = 1) -> Training:
    """The training whose workers wrote `rows`; those without rows are left out. `actors` processes
    played the frames that one worker's rows count."""
    rows = [each for each in rows if len(each)]
    if not rows:
        return Training(_NONE, _NONE, _NONE, _NONE, _NONE, window, 0.0, 0.0, None)
    x, y, episodes = (np.concatenate(parts) for parts in zip(*map(_returns, rows), strict=True))
    order = np.argsort(x, kind="stable")
    grid = np.unique(x)
    finals = np.array([each["final_return"][-1] for each in rows])
    finals = finals[np.isfinite(finals)]
    return Training(
        grid,
        trailing_mean(Line(x[order], y[order]), episodes[order], grid, window),
        _clock(rows, "frame", grid).mean(axis=0) / actors,
        _clock(rows, "wall_t", grid).max(axis=0),
        _clock(rows, "cpu_t", grid).sum(axis=0),
        window,
        max(float(each["total_frame"][-1]) for each in rows),
        max(float(each["wall_t"][-1]) for each in rows),
        float(finals.mean()) if finals.size else None,
    )


def _returns(rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(P,) each: total frames, mean return and number of the episodes of every row with any."""
    known = np.isfinite(rows["mean_return"])
    return rows["total_frame"][known], rows["mean_return"][known], episode_counts(rows)[known]


def _clock(rows: Sequence[Rows], column: str, grid: FloatArray) -> FloatArray:
    """(W, G): each worker's clock at so many frames of all. It starts at 0 and stops when a worker
    has ended."""
    clocks = np.full((len(rows), len(grid)), np.nan)
    for clock, each in zip(clocks, rows, strict=True):
        if column in each.columns and each.has_values(column):
            frames = np.concatenate([[0.0], each["total_frame"]])
            clock[:] = np.interp(grid, frames, np.concatenate([[0.0], each[column]]))
    return clocks


class Outcome(NamedTuple):
    """The trainings of a variant by seed, and why others failed."""

    variant: Variant
    trainings: Mapping[int, Training]
    failures: Mapping[int, str] = MappingProxyType({})


class Comparison(NamedTuple):
    """All that a comparison knows; the first outcome is the baseline's."""

    title: str
    """Algorithm and environment."""
    outcomes: tuple[Outcome, ...]
    max_frame: int
    """Total frames of each training."""
    seeds: int
    cores: int
    processor: str
    threshold: float | None
    window: float
    notes: tuple[str, ...] = ()

    @property
    def worker_counts(self) -> list[int]:
        """Those of the variants, from few to many."""
        return sorted({each.variant.workers for each in self.outcomes[1:]})


def line_over(training: Training, x: Axis) -> Line:
    """The return of a training over one of its clocks: the column that `x` names."""
    clock = training.clock(x.column) / x.unit_size
    known = np.isfinite(clock)
    return Line(clock[known], training.episode_return[known])
