"""What a comparison measures, over the frames of all workers, and its tables, also as
text."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slm_lab.charts.axis import Axis, episode_counts, trailing_mean
from slm_lab.core.text import TextTable, with_spread
from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.recent import WINDOW_SHARE

if TYPE_CHECKING:
    import pandas as pd

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
    final_return: float | None
    """Mean over the workers."""

    @property
    def frames_per_s(self) -> float | None:
        """Total frames over training time."""
        return self.frames / self.seconds if self.seconds > 0 else None

    @property
    def cores_used(self) -> float | None:
        """CPU time over training time: below the workers' number if they wait or lack
        cores."""
        known = (
            self.wall_t.size > 0 and np.isfinite(self.cpu_t[-1]) and self.wall_t[-1] > 0
        )
        return float(self.cpu_t[-1] / self.wall_t[-1]) if known else None

    def clock(self, column: str) -> FloatArray:
        """(P,): the clock of this column at each of `total_frame`."""
        return self._asdict()[column]

    def reached(self, threshold: float) -> int | None:
        """Where `episode_return` first reaches `threshold`, from the first whole window
        on."""
        there = (self.total_frame >= self.window) & (self.episode_return >= threshold)
        return int(there.argmax()) if there.any() else None


def window_of(max_frame: int, log_frequency: int, most_workers: int) -> float:
    """Total frames over which the returns of all variants are averaged. Workers that
    each write a row every `log_frequency` frames write them in bunches, so it holds one
    bunch at least."""
    bunch = float(log_frequency * most_workers)
    return min(max(WINDOW_SHARE * max_frame, bunch), float(max_frame))


def training_of(rows: Sequence[Rows], window: float, actors: int = 1) -> Training:
    """The training whose workers wrote `rows`; those without rows are left out.
    `actors` processes played the frames that one worker's rows count."""
    rows = [each for each in rows if len(each)]
    if not rows:
        return Training(_NONE, _NONE, _NONE, _NONE, _NONE, window, 0.0, 0.0, None)
    x, y, episodes = (
        np.concatenate(parts) for parts in zip(*map(_returns, rows), strict=True)
    )
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
    """(P,) each: total frames, mean return and number of the episodes of every row with
    any."""
    known = np.isfinite(rows["mean_return"])
    return (
        rows["total_frame"][known],
        rows["mean_return"][known],
        episode_counts(rows)[known],
    )


def _clock(rows: Sequence[Rows], column: str, grid: FloatArray) -> FloatArray:
    """(W, G): each worker's clock at so many frames of all, from 0 until the worker has
    ended."""
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


_CLOCKS = {"frames": "total_frame", "seconds": "wall_t", "cpu_seconds": "cpu_t"}
_VARIANT = ["mode", "workers"]


def trainings_table(comparison: Comparison) -> "pd.DataFrame":
    """A row for each variant and seed, from which everything else is made. A threshold
    that was never reached is infinitely late; unknown values are missing."""
    import pandas as pd

    columns = (
        *_VARIANT,
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
    for variant, trainings, failures in comparison.outcomes:
        for seed in sorted({*trainings, *failures}):
            row: dict[str, Any] = {**variant._asdict(), "random_seed": seed}
            if seed in trainings:
                row |= _numbers(trainings[seed], comparison.threshold)
            if seed in failures:
                row["failure"] = failures[seed].strip().splitlines()[-1]
            rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def _numbers(training: Training, threshold: float | None) -> dict[str, float | None]:
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
            numbers[f"{name}_to_threshold"] = (
                np.inf if at is None else training.clock(clock)[at]
            )
    return numbers


def summary_table(comparison: Comparison) -> "pd.DataFrame":
    """A row for each variant, in order: medians over its seeds; of final returns the
    mean. A speed-up is over the baseline's training with the same seed, because a
    disturbance of the machine affects both."""
    import pandas as pd

    seeds = trainings_table(comparison)
    alone = seeds[seeds["mode"] == BASELINE].set_index("random_seed")["frames_per_s"]
    seeds["speed_up"] = seeds["frames_per_s"] / seeds["random_seed"].map(alone)
    seeds["reached"] = np.isfinite(seeds["frames_to_threshold"].astype(float))
    returns, late = "final_return", [f"{name}_to_threshold" for name in _CLOCKS]
    found = seeds.groupby(_VARIANT, sort=False).agg(
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
    variants = [each.variant for each in comparison.outcomes]
    places = pd.MultiIndex.from_tuples([each[:2] for each in variants], names=_VARIANT)
    table = found.reindex(places).reset_index()
    counts = ["finished", "failed", "reached"]
    table[counts] = table[counts].fillna(0).astype(int)
    if comparison.threshold is None:
        table["reached"] = None
    table["more_workers_than_cores"] = [int(each.crowded) for each in variants]
    table["ideal_speed_up"] = table["workers"]
    about = {"seeds": comparison.seeds, "max_frame": comparison.max_frame}
    table = table.assign(**about, threshold=comparison.threshold)
    columns = [
        *_VARIANT,
        "more_workers_than_cores",
        "seeds",
        "finished",
        "failed",
        "max_frame",
        "frames_per_s",
        "speed_up",
        "speed_up_low",
        "speed_up_high",
        "ideal_speed_up",
        "cores_used",
        "final_return",
        "final_return_std",
        "threshold",
        "reached",
        *late,
    ]
    return table[columns]


def text_table(comparison: Comparison) -> TextTable:
    """A row for each variant; "failed" if no training finished."""
    columns: dict[str, Callable[[Any], str]] = {
        "frames/s": _speed,
        "speed-up": lambda row: _with(row.speed_up, "{:.2f}"),
        "of ideal": lambda row: _with(row.speed_up / row.ideal_speed_up, "{:.0%}"),
        "cores used": lambda row: _with(row.cores_used, "{:.2f}"),
        "final return": _final_return,
    }
    if comparison.threshold is not None:
        goal = f"{comparison.threshold:g}"
        columns |= {
            f"frames to {goal}": lambda row: _late(row.frames_to_threshold, row, ""),
            f"time to {goal}": lambda row: _late(row.seconds_to_threshold, row, " s"),
            f"CPU time to {goal}": lambda row: _late(
                row.cpu_seconds_to_threshold, row, " s"
            ),
        }
    table = summary_table(comparison).itertuples()
    rows = [
        (_label(each.variant, row), *(cell(row) for cell in columns.values()))
        for each, row in zip(comparison.outcomes, table, strict=True)
    ]
    late = [name for name in reversed(columns) if " to " in name]
    return TextTable(
        ("variant", *columns), tuple(rows), 0, ("cores used", "of ideal", *late)
    )


def _label(variant: Variant, row: Any) -> str:
    """With the number of seeds, unless all have finished."""
    if row.finished in (0, row.seeds):
        return variant.label
    return f"{variant.label} ({row.finished} of {row.seeds} seeds)"


def _speed(row: Any) -> str:
    if not row.finished:
        return "failed" if row.failed else "–"
    return _with(row.frames_per_s, "{:,.0f}")


def _final_return(row: Any) -> str:
    if np.isnan(row.final_return):
        return "–"
    return with_spread(
        row.final_return, row.final_return_std if row.finished > 1 else None
    )


def _late(value: float, row: Any, unit: str) -> str:
    """With the number of seeds that reached the threshold, unless all did."""
    of = f"{row.reached} of {row.finished}"
    if np.isinf(value):
        return f"in {of} only" if row.reached else "never"
    share = f" ({of})" if row.reached < row.finished else ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if value >= 1e4:  # as 12.3k or 123k
        text = f"{value / 1000:,.1f}k" if value < 1e5 else f"{value / 1000:,.0f}k"
    return "–" if np.isnan(value) else f"{text}{unit}{share}"


def _with(value: float, form: str) -> str:
    return "–" if np.isnan(value) else form.format(value)
