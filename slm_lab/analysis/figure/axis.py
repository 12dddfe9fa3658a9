"""The columns that a graph can show on its axes: labels, units, and values of rows."""

from typing import NamedTuple

import numpy as np

from slm_lab.analysis.figure.grid import Line, trailing_mean
from slm_lab.core.types import FloatArray
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.recent import FEWEST, WINDOW_SHARE
from slm_lab.metrics.row import BASE_COLUMNS, COLUMNS, LEARNED


class Axis(NamedTuple):
    """A column as an axis: `file` names it in file names, values are divided by `unit_size`. With
    `window_share`, a value is the mean over the rows of that share of the total frames; of returns,
    over their episodes."""

    column: str
    file: str
    label: str
    unit_size: float = 1.0
    window_share: float = 0.0


_LABELS = {
    "lr": "learning rate",
    "explore_var": "exploration variable",
    "grad_norm": "gradient norm before clipping",
    "approx_kl": "approximate KL",
    "clip_eps": "clipping range ε",
    "alpha": "temperature α",
    "staleness_p50": "staleness, median",
    "staleness_p95": "staleness, 95 % quantile",
    "updates_per_s": "gradient steps of a Session",
    "sync_share": "share of the time spent on exchanging",
    "eps": "EPS",
    "policy_lag": "policy lag, mean",
    "policy_lag_max": "policy lag, most",
    "actor_wait_share": "wait share of actors",
    "learner_wait_share": "wait share of the learner",
}

RETURNS = (
    Axis("mean_return", "mean_returns", "mean return"),
    Axis(
        "mean_return",
        "mean_returns_ma",
        f"mean return over {100 * WINDOW_SHARE:g} % of the frames",
        window_share=WINDOW_SHARE,
    ),
)
"""Mean raw return of the episodes of a row; and the same over a window of frames."""

EVAL_RETURNS = Axis("total_reward", "eval_mean_returns", "mean return of the evaluation")
EVAL_SPREAD = Axis("return_std", "eval_return_std", "standard deviation over its episodes")
"""Of the greedy episodes of one evaluation."""


TOTAL_FRAMES = Axis("total_frame", "total_frames", "total frames")
"""Environment steps of all Sessions together."""


def learner_columns(rows: Rows) -> list[str]:
    """The columns that learners and modes report and that have any value in `rows`."""
    reported = [c for c in rows.columns if c in LEARNED or c not in BASE_COLUMNS]
    return [c for c in reported if rows.has_values(c)]


def learner_axis(column: str) -> Axis:
    """The y axis of a learner's column, with its unit if it has one."""
    label = _LABELS.get(column, column.replace("_", " "))
    unit = COLUMNS[column].unit if column in COLUMNS else "1"
    return Axis(column, column.replace("/", "."), label if unit == "1" else f"{label} ({unit})")


def column_axis(column: str) -> Axis:
    """The y axis of any column."""
    return RETURNS[0] if column == RETURNS[0].column else learner_axis(column)


def frames(of: str = "") -> Axis:
    """Environment steps; `of` qualifies them ("per Session")."""
    return Axis("frame", "frames", f"frames {of}".strip())


def wall_clock(longest: float) -> Axis:
    """Training time in the unit that suits `longest` seconds."""
    size, unit = (60.0, "min") if longest <= 7200 else (3600.0, "h")
    if longest <= 300:
        size, unit = 1.0, "s"
    return Axis("wall_t", "wall_t", f"training time ({unit})", size)


def line(rows: Rows, x: Axis, y: Axis) -> Line:
    """The rows in which `y` has a finite value."""
    if y.column not in rows.columns:
        return Line(np.empty(0), np.empty(0))
    values = rows[y.column] / y.unit_size
    known = np.isfinite(values)
    if y.window_share and known.any():
        clock, weights, fewest = rows["total_frame"], np.ones(int(known.sum())), 1.0
        if y.column == RETURNS[0].column:
            weights = episode_counts(rows)[known]
            # The final return of one of several workers is the mean of fewer than FEWEST episodes.
            fewest = min(FEWEST, float(rows["final_return_episodes"][-1]))
        over_clock = Line(clock[known], values[known])
        width = y.window_share * float(clock[-1])
        values = trailing_mean(over_clock, weights, clock, width, fewest)
        known = np.isfinite(values)  # a row in which no episode ended has a window, too
    return Line(rows[x.column][known] / x.unit_size, values[known])


def episode_counts(rows: Rows) -> FloatArray:
    """(R,): how many episodes have ended since the row before."""
    return np.diff(rows["epi"], prepend=0.0)
