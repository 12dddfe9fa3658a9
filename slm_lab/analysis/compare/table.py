"""A comparison as a table: for people, and as CSV for programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slm_lab.analysis.compare.comparison import BASELINE, Comparison, Outcome, Summary
from slm_lab.analysis.table import TextTable, csv_bytes
from slm_lab.core.text import significant

_COLUMNS = (
    "mode", "workers", "more_workers_than_cores", "seeds", "finished", "failed", "max_frame",
    "frames_per_s", "speed_up", "speed_up_low", "speed_up_high", "ideal_speed_up", "cores_used",
    "final_return", "final_return_std", "threshold", "reached", "frames_to_threshold",
    "seconds_to_threshold", "cpu_seconds_to_threshold",
)  # fmt: skip
_CLOCKS = {"frames": "total_frame", "seconds": "wall_t", "cpu_seconds": "cpu_t"}


def text_table(comparison: Comparison) -> TextTable:
    """One row per variant; medians over its seeds. "failed" if none finished."""
    columns: dict[str, Callable[[Summary], str]] = {
        "variant": lambda s: _label(s, comparison.seeds),
        "frames/s": _speed,
        "speed-up": lambda s: _with(s.speed_up, "{:.2f}"),
        "of ideal": lambda s: _with(s.efficiency, "{:.0%}"),
        "cores used": lambda s: _with(s.cores_used, "{:.2f}"),
        "final return": _final_return,
    }
    if comparison.threshold is not None:
        goal = f"{comparison.threshold:g}"
        columns |= {
            f"frames to {goal}": lambda s: _late(s.frames_to_threshold, s, ""),
            f"time to {goal}": lambda s: _late(s.seconds_to_threshold, s, " s"),
            f"CPU time to {goal}": lambda s: _late(s.cpu_seconds_to_threshold, s, " s"),
        }
    rows = tuple(tuple(cell(each) for cell in columns.values()) for each in comparison.summaries)
    return TextTable(tuple(columns), rows)


def summary_csv(comparison: Comparison) -> bytes:
    """One line per variant, the same numbers in full; "inf" is never, an empty cell unknown."""
    lines = []
    for summary in comparison.summaries:
        variant, numbers = summary.variant, summary._asdict()
        if variant.mode == BASELINE and summary.finished:
            numbers["speed_up"] = 1.0
        if comparison.threshold is None:
            numbers["reached"] = None
        cells = {**numbers, "mode": variant.mode, "workers": variant.workers}
        cells |= {"more_workers_than_cores": int(variant.crowded), "seeds": comparison.seeds}
        cells |= {"max_frame": comparison.max_frame, "ideal_speed_up": variant.workers}
        cells |= {"threshold": comparison.threshold}
        lines.append({column: cells[column] for column in _COLUMNS})
    return _csv(lines)


def trainings_csv(comparison: Comparison) -> bytes:
    """One line per variant and seed, from which everything else is made."""
    return _csv([line for each in comparison.outcomes for line in _trainings(each, comparison)])


def _trainings(outcome: Outcome, comparison: Comparison) -> list[dict[str, Any]]:
    lines = []
    variant, threshold = outcome.variant, comparison.threshold
    for seed in sorted({*outcome.trainings, *outcome.failures}):
        training, failure = outcome.trainings.get(seed), outcome.failures.get(seed, "")
        cells: dict[str, Any] = {
            "mode": variant.mode,
            "workers": variant.workers,
            "random_seed": seed,
            "total_frame": training and training.frames,
            "wall_t": training and training.seconds,
            "frames_per_s": training and training.frames_per_s,
            "cores_used": training and training.cores_used,
            "final_return": training and training.final_return,
        }
        for name, clock in _CLOCKS.items():
            late = None
            if training is not None and threshold is not None:
                at = training.reached(threshold)
                late = np.inf if at is None else training.clock(clock)[at]
            cells[f"{name}_to_threshold"] = late
        lines.append({**cells, "failure": failure.strip().splitlines()[-1] if failure else None})
    return lines


def _label(summary: Summary, seeds: int) -> str:
    """With how many seeds there are, unless these are all."""
    if summary.finished in (0, seeds):
        return summary.variant.label
    return f"{summary.variant.label} ({summary.finished} of {seeds} seeds)"


def _speed(summary: Summary) -> str:
    if not summary.finished:
        return "failed" if summary.failed else "–"
    return _with(summary.frames_per_s, "{:,.0f}")


def _final_return(summary: Summary) -> str:
    spread = f" ± {significant(summary.final_return_std)}" if summary.finished > 1 else ""
    return f"{significant(summary.final_return)}{spread}"


def _late(value: float | None, summary: Summary, unit: str) -> str:
    """Where not every seed got there, with how many did."""
    if value is None:
        return "–"
    of = f"{summary.reached} of {summary.finished}"
    if np.isinf(value):
        return f"in {of} only" if summary.reached else "never"
    share = f" ({of})" if summary.reached < summary.finished else ""
    return f"{_three_digits(value)}{unit}{share}"


def _three_digits(value: float) -> str:
    """As 12.3k, 1,234, 123, 1.23."""
    if value >= 1e4:
        return f"{value / 1000:,.1f}k" if value < 1e5 else f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _with(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _csv(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return csv_bytes(list(lines[0]), [list(line.values()) for line in lines]) if lines else b""
