"""A comparison as tables: of its trainings, and of its variants, for programs and for people."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from slm_lab.analysis.compare.comparison import BASELINE, Comparison, Training, Variant
from slm_lab.analysis.table import TextTable
from slm_lab.core.text import with_spread

if TYPE_CHECKING:
    import pandas as pd

_CLOCKS = {"frames": "total_frame", "seconds": "wall_t", "cpu_seconds": "cpu_t"}
_VARIANT = ["mode", "workers"]


def trainings_table(comparison: Comparison) -> "pd.DataFrame":
    """A row for each variant and seed, from which everything else is made. A threshold that was
    never reached is infinitely late; unknown values are missing."""
    import pandas as pd

    columns = (
        *_VARIANT, "random_seed", "total_frame", "wall_t", "frames_per_s", "cores_used",
        "final_return", *(f"{name}_to_threshold" for name in _CLOCKS), "failure",
    )  # fmt: skip
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
            late = np.inf if at is None else training.clock(clock)[at]
            numbers[f"{name}_to_threshold"] = late
    return numbers


def summary_table(comparison: Comparison) -> "pd.DataFrame":
    """A row for each variant, in order: medians over its seeds; of final returns the mean. A
    speed-up is over the baseline's training with the same seed, because a disturbance of the
    machine affects both."""
    import pandas as pd

    seeds = trainings_table(comparison)
    alone = seeds[seeds["mode"] == BASELINE].set_index("random_seed")["frames_per_s"]
    seeds["speed_up"] = seeds["frames_per_s"] / seeds["random_seed"].map(alone)
    seeds["reached"] = np.isfinite(seeds["frames_to_threshold"])
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
        *_VARIANT, "more_workers_than_cores", "seeds", "finished", "failed", "max_frame",
        "frames_per_s", "speed_up", "speed_up_low", "speed_up_high", "ideal_speed_up",
        "cores_used", "final_return", "final_return_std", "threshold", "reached", *late,
    ]  # fmt: skip
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
            f"CPU time to {goal}": lambda row: _late(row.cpu_seconds_to_threshold, row, " s"),
        }
    rows = [
        (_label(each.variant, row), *(cell(row) for cell in columns.values()))
        for each, row in zip(
            comparison.outcomes, summary_table(comparison).itertuples(), strict=True
        )
    ]
    late = [name for name in reversed(columns) if " to " in name]
    return TextTable(("variant", *columns), tuple(rows), 0, ("cores used", "of ideal", *late))


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
    return with_spread(row.final_return, row.final_return_std if row.finished > 1 else None)


def _late(value: float, row: Any, unit: str) -> str:
    """With the number of seeds that reached the threshold, unless all did."""
    of = f"{row.reached} of {row.finished}"
    if np.isinf(value):
        return f"in {of} only" if row.reached else "never"
    share = f" ({of})" if row.reached < row.finished else ""
    return "–" if np.isnan(value) else f"{_three_digits(value)}{unit}{share}"


def _three_digits(value: float) -> str:
    """As 12.3k, 1,234, 123, 1.23."""
    if value >= 1e4:
        return f"{value / 1000:,.1f}k" if value < 1e5 else f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _with(value: float, form: str) -> str:
    return "–" if np.isnan(value) else form.format(value)
