"""The measurements of a comparison, over the frames of all workers, and its tables,
also as text."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slm_lab.charts.axis import Axis, episode_counts, trailing_mean
from slm_lab.charts.trainings import training_end
from slm_lab.core.text import TextTable, error_summary, number_or_dash, with_spread
from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import NO_ROWS, Rows
from slm_lab.metrics.recent import WINDOW_SHARE
from slm_lab.spec.modes import mode_of

if TYPE_CHECKING:
    import pandas as pd

    from slm_lab.spec.schema.spec import Spec

BASELINE = "false"
"""The word of one process that trains alone."""
CROWDED = "†"
"""Marks more workers than cores."""


class Way(NamedTuple):
    """One way of training: the word in `meta.distributed`, and how many workers."""

    mode: str
    workers: int
    crowded: bool = False
    """Whether there are more workers than cores."""
    has_learner: bool = False
    """Whether the workers are actors, and one process more learns."""

    @property
    def name(self) -> str:
        """The name of its mode in graphs."""
        if self.mode == BASELINE:
            return "one process"
        return self.mode

    @property
    def label(self) -> str:
        """The name of the way in graphs and tables."""
        if self.mode == BASELINE:
            return self.name
        return f"{self.mode} × {self.number}"

    @property
    def number(self) -> str:
        """The number of workers, marked if it is more than the cores."""
        return f"{self.workers}{f' {CROWDED}' * self.crowded}"

    @classmethod
    def on(cls, cores: int, mode: str, workers: int) -> "Way":
        """Training in the mode `mode` with so many workers on so many cores."""
        return cls(
            mode,
            workers,
            crowded=workers > cores,
            has_learner=mode_of(mode).has_learner,
        )

    @classmethod
    def of(cls, spec: "Spec", cores: int) -> "Way":
        """The way in which a spec trains."""
        mode = spec.meta.distributed
        if mode is False:
            return cls(BASELINE, 1)
        return cls.on(cores, mode, spec.meta.max_session)


class Training(NamedTuple):
    """One training, over the total frames of all its workers; every array is (P,).
    `total_frame` rises; `episode_return` is the mean over the episodes of the last
    `window` total frames, in rows. `frame` (per process), `wall_t` and `cpu_t` (s; of
    all processes, NaN where it was not counted) never fall."""

    total_frame: FloatArray
    episode_return: FloatArray
    frame: FloatArray
    wall_t: FloatArray
    cpu_t: FloatArray
    window: float
    frames: float
    """All workers' frames at the end of training."""
    seconds: float
    final_return: float
    """Mean over the workers. It is NaN if no episode has ended, as speeds are that
    were not measured."""

    @property
    def frames_per_s(self) -> float:
        """Total frames over training time."""
        if self.seconds > 0:
            return self.frames / self.seconds
        return np.nan

    @property
    def cores_used(self) -> float:
        """CPU time over training time: below the workers' number if they wait or lack
        cores."""
        if self.wall_t.size and self.wall_t[-1] > 0:
            return float(self.cpu_t[-1] / self.wall_t[-1])
        return np.nan

    def clock(self, column: str) -> FloatArray:
        """(P,): the clock of this column at each of `total_frame`."""
        return self._asdict()[column]

    def reached(self, threshold: float) -> int | None:
        """The index at which `episode_return` first reaches `threshold`, from the first
        whole window on; None if it never does."""
        there = (self.total_frame >= self.window) & (self.episode_return >= threshold)
        if there.any():
            return int(there.argmax())
        return None


def window_of(max_frame: int, log_frequency: int, most_workers: int) -> float:
    """Total frames over which the returns of all variants are averaged. Workers that
    each write a row every `log_frequency` frames write them in bunches, so it holds one
    bunch at least."""
    bunch = float(log_frequency * most_workers)
    return min(max(WINDOW_SHARE * max_frame, bunch), float(max_frame))


def training_of(rows: Sequence[Rows], window: float, actors: int = 1) -> Training:
    """The training whose workers wrote `rows`; those without rows are left out.
    `actors` processes played the frames that one worker's rows count."""
    rows = [worker for worker in rows if len(worker)] or [NO_ROWS]
    frames = np.concatenate([worker["total_frame"] for worker in rows])
    returns = np.concatenate([worker["mean_return"] for worker in rows])
    episodes = np.concatenate([episode_counts(worker) for worker in rows])
    order = np.argsort(frames, kind="stable")
    order = order[np.isfinite(returns[order])]
    grid = np.unique(frames[order])
    line = Line(frames[order], returns[order])
    return Training(
        total_frame=grid,
        episode_return=trailing_mean(line, episodes[order], grid, window),
        frame=_clock(rows, "frame", grid).mean(axis=0) / actors,
        wall_t=_clock(rows, "wall_t", grid).max(axis=0),
        cpu_t=_clock(rows, "cpu_t", grid).sum(axis=0),
        window=window,
        **training_end(rows)._asdict(),
    )


def _clock(rows: Sequence[Rows], column: str, grid: FloatArray) -> FloatArray:
    """(W, G): each worker's clock at so many frames of all, from 0 until the worker has
    ended."""
    clocks = np.full((len(rows), len(grid)), np.nan)
    for clock, session_rows in zip(clocks, rows, strict=True):
        if column in session_rows.columns and session_rows.has_values(column):
            frames = np.concatenate([[0.0], session_rows["total_frame"]])
            clock[:] = np.interp(
                grid, frames, np.concatenate([[0.0], session_rows[column]])
            )
    return clocks


class VariantResult(NamedTuple):
    """The trainings of a variant by seed, and why others failed."""

    way: Way
    trainings: Mapping[int, Training]
    failures: Mapping[int, str] = MappingProxyType({})


class ComparedTrainings(NamedTuple):
    """All that a comparison knows; the first outcome is the baseline's."""

    title: str
    """Algorithm and environment."""
    outcomes: tuple[VariantResult, ...]
    max_frame: int
    seeds: int
    cores: int
    processor: str
    threshold: float | None
    window: float
    notes: tuple[str, ...] = ()

    @property
    def worker_counts(self) -> list[int]:
        """The numbers of workers of the variants, from few to many."""
        return sorted({outcome.way.workers for outcome in self.outcomes[1:]})


def line_over(training: Training, x: Axis) -> Line:
    """The return of a training over one of its clocks: the column that `x` names."""
    clock = training.clock(x.column) / x.unit_size
    known = np.isfinite(clock)
    return Line(clock[known], training.episode_return[known])


_CLOCKS = {"frames": "total_frame", "seconds": "wall_t", "cpu_seconds": "cpu_t"}
_WAY = ["mode", "workers"]


def trainings_table(comparison: ComparedTrainings) -> "pd.DataFrame":
    """A row for each variant and seed, from which everything else is made. A threshold
    that was never reached is infinitely late; unknown values are missing."""
    import pandas as pd

    columns = (
        *_WAY,
        "random_seed",
        "total_frame",
        "wall_t",
        "frames_per_s",
        "cores_used",
        "final_return",
        *(f"{name}_to_threshold" for name in _CLOCKS),
        "failure",
    )
    rows = []
    for way, trainings, failures in comparison.outcomes:
        for seed in sorted({*trainings, *failures}):
            row: dict[str, Any] = {**way._asdict(), "random_seed": seed}
            if seed in trainings:
                row |= _numbers(trainings[seed], comparison.threshold)
            if seed in failures:
                row["failure"] = error_summary(failures[seed])
            rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def _numbers(training: Training, threshold: float | None) -> dict[str, float]:
    numbers = {
        "total_frame": training.frames,
        "wall_t": training.seconds,
        "frames_per_s": training.frames_per_s,
        "cores_used": training.cores_used,
        "final_return": training.final_return,
    }
    if threshold is not None:
        at = training.reached(threshold)
        for name, clock in _CLOCKS.items():
            numbers[f"{name}_to_threshold"] = np.inf
            if at is not None:
                numbers[f"{name}_to_threshold"] = training.clock(clock)[at]
    return numbers


def summary_table(comparison: ComparedTrainings) -> "pd.DataFrame":
    """A row for each variant, in order: medians over its seeds; of final returns the
    mean. A speed-up is over the baseline's training with the same seed, because a
    disturbance of the machine affects both."""
    import pandas as pd

    seeds = trainings_table(comparison)
    alone = seeds[seeds["mode"] == BASELINE].set_index("random_seed")["frames_per_s"]
    seeds["speed_up"] = seeds["frames_per_s"] / seeds["random_seed"].map(alone)
    seeds["reached"] = np.isfinite(seeds["frames_to_threshold"].astype(float))
    returns = "final_return"
    late = [f"{name}_to_threshold" for name in _CLOCKS]
    by_variant = seeds.groupby(_WAY, sort=False).agg(
        finished=("total_frame", "count"),
        failed=("failure", "count"),
        frames_per_s=("frames_per_s", "median"),
        speed_up=("speed_up", "median"),
        speed_up_low=("speed_up", "min"),
        speed_up_high=("speed_up", "max"),
        cores_used=("cores_used", "median"),
        final_return=(returns, lambda values: values.mean()),
        final_return_std=(returns, lambda values: values.std(ddof=0)),
        reached=("reached", "sum"),
        **{column: (column, "median") for column in late},
    )
    ways = [outcome.way for outcome in comparison.outcomes]
    places = pd.MultiIndex.from_tuples([(w.mode, w.workers) for w in ways], names=_WAY)
    table = by_variant.reindex(places).reset_index()
    counts = ["finished", "failed", "reached"]
    table[counts] = table[counts].fillna(0).astype(int)
    if comparison.threshold is None:
        table["reached"] = None
    table["more_workers_than_cores"] = [int(way.crowded) for way in ways]
    table["ideal_speed_up"] = table["workers"]
    return table.assign(
        seeds=comparison.seeds,
        max_frame=comparison.max_frame,
        threshold=comparison.threshold,
    )


def text_table(summary: "pd.DataFrame") -> TextTable:
    """A row for each variant of a `summary_table`; "failed" if no training finished."""
    columns: dict[str, Callable[[Any], str]] = {
        "frames/s": _speed,
        "speed-up": lambda row: number_or_dash(row.speed_up, ".2f"),
        "of ideal": lambda row: number_or_dash(
            row.speed_up / row.ideal_speed_up, ".0%"
        ),
        "cores used": lambda row: number_or_dash(row.cores_used, ".2f"),
        "final return": _final_return,
    }
    for threshold in summary["threshold"].dropna().unique():
        goal = f"{threshold:g}"
        columns |= {
            f"frames to {goal}": lambda row: _late(row.frames_to_threshold, row, ""),
            f"time to {goal}": lambda row: _late(row.seconds_to_threshold, row, " s"),
            f"CPU time to {goal}": lambda row: _late(
                row.cpu_seconds_to_threshold, row, " s"
            ),
        }
    rows = [
        (_label(row), *(cell(row) for cell in columns.values()))
        for row in summary.itertuples()
    ]
    late = [name for name in reversed(columns) if " to " in name]
    return TextTable(
        ("variant", *columns), tuple(rows), 0, ("cores used", "of ideal", *late)
    )


def _label(row: Any) -> str:
    """The label of a variant; with the number of seeds, unless all have finished."""
    way = Way(row.mode, row.workers, bool(row.more_workers_than_cores))
    if row.finished in (0, row.seeds):
        return way.label
    return f"{way.label} ({row.finished} of {row.seeds} seeds)"


def _speed(row: Any) -> str:
    if not row.finished:
        if row.failed:
            return "failed"
        return "–"
    return number_or_dash(row.frames_per_s, ",.0f")


def _final_return(row: Any) -> str:
    std = row.final_return_std
    if row.finished == 1 or np.isnan(std):
        std = None
    return with_spread(row.final_return, std)


def _late(value: float, row: Any, unit: str) -> str:
    """Text that says when the threshold was reached. The number of seeds that reached
    it follows, unless all did."""
    of = f"{row.reached} of {row.finished}"
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        if row.reached:
            return f"in {of} only"
        return "never"
    share = ""
    if row.reached < row.finished:
        share = f" ({of})"
    shown = value
    if value >= 1e4:
        shown = value / 1000
        unit = f"k{unit}"
    forms = {1e5: ",.0f", 1e4: ",.1f", 100: ",.0f", 0: ".3g"}
    form = next(form for least, form in forms.items() if value >= least)
    return f"{shown:{form}}{unit}{share}"
