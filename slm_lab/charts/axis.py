"""The columns that a chart can show: axes, and lines of values over them."""

from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.recent import FEWEST, WINDOW_SHARE
from slm_lab.metrics.row import COLUMNS, LABELS


class Axis(NamedTuple):
    """A column as an axis: `file` names it in file names, values are divided by
    `unit_size`. With `window_share` a value is the mean over the rows, or episodes, of
    that share of the frames."""

    column: str
    file: str
    label: str
    unit_size: float = 1.0
    window_share: float = 0.0

    def smoothed(self, share: float) -> "Axis":
        """The mean over a window that ends at each row, see `line`; the label names
        it."""
        window = f"{100 * share:g} % of frames"
        if self.column == MEAN_RETURN:
            window += f", ≥ {FEWEST} episodes"
        return self._replace(label=f"{self.label} over {window}", window_share=share)


MEAN_RETURN = "mean_return"
"""The column of the returns of the episodes that ended since the row before."""
_RETURN = Axis(MEAN_RETURN, "mean_returns", "mean return")
RETURNS = (_RETURN, _RETURN._replace(file="mean_returns_ma").smoothed(WINDOW_SHARE))
"""Mean raw return of the episodes of a row; and the same over a window of frames."""

EVAL_RETURNS = Axis(
    "total_reward", "eval_mean_returns", "mean return of the evaluation"
)
EVAL_SPREAD = Axis(
    "return_std", "eval_return_std", "standard deviation over its episodes"
)
"""The mean return of the greedy episodes of one evaluation, and its spread."""


TOTAL_FRAMES = Axis("total_frame", "total_frames", "total frames")
"""Environment steps of all Sessions together."""

X_WORDS = ("frames", "total_frames", "wall_t")
Y_AXES = {axis.file: axis for axis in (RETURNS[1], RETURNS[0], EVAL_RETURNS)}
"""The y axes, by the word in the command; the first is the default."""
CLOCKS = ("frame", "total_frame", "wall_t", "cpu_t")
"""Columns that only grow with time."""


def learner_axis(column: str) -> Axis:
    """The y axis of a learner's column, with its unit if it has one."""
    label = LABELS["columns"].get(column, column.replace("_", " "))
    if column in COLUMNS and COLUMNS[column].unit != "1":
        label += f" ({COLUMNS[column].unit})"
    return Axis(column, column.replace("/", "."), label)


def column_axis(column: str) -> Axis:
    """The y axis of any column."""
    if column == RETURNS[0].column:
        return RETURNS[0]
    return learner_axis(column)


def frames(of: str = "") -> Axis:
    """Environment steps; `of` qualifies them ("per Session")."""
    return Axis("frame", "frames", f"frames {of}".strip())


def wall_clock(longest: float) -> Axis:
    """Training time in the unit that suits `longest` seconds."""
    return _time_axis("wall_t", "training time", longest)


def cpu_clock(longest: float) -> Axis:
    """CPU time of all processes in the unit that suits `longest` seconds."""
    return _time_axis("cpu_t", "CPU time of all processes", longest)


def _time_axis(column: str, name: str, longest: float) -> Axis:
    size = 3600.0
    unit = "h"
    if longest <= 300:
        size = 1.0
        unit = "s"
    elif longest <= 7200:
        size = 60.0
        unit = "min"
    return Axis(column, column, f"{name} ({unit})", size)


def x_axis(word: str, longest: float, of: str = "per Session") -> Axis:
    """The x axis of a word; `longest` is the training time, in s, that has to fit on
    it. `of` as for `frames`."""
    axes = {"frames": frames(of), "total_frames": TOTAL_FRAMES}
    if word in axes:
        return axes[word]
    return wall_clock(longest)


def line(rows: Rows, x: Axis, y: Axis) -> Line:
    """The rows in which `y` has a finite value."""
    if y.column not in rows.columns:
        return Line(np.empty(0), np.empty(0))
    values = rows[y.column] / y.unit_size
    known = np.isfinite(values)
    if y.window_share and known.any():
        clock = rows["total_frame"]
        weights = np.ones(int(known.sum()))
        fewest = 1.0
        if y.column == MEAN_RETURN:
            weights = episode_counts(rows)[known]
            # The final return of one of several workers is the mean of fewer than
            # FEWEST episodes.
            fewest = min(FEWEST, float(rows["final_return_episodes"][-1]))
        over_clock = Line(clock[known], values[known])
        width = y.window_share * float(clock[-1])
        values = trailing_mean(over_clock, weights, clock, width, fewest=fewest)
        known = np.isfinite(values)  # a row in which no episode ended has a window, too
    return Line(rows[x.column][known] / x.unit_size, values[known])


def episode_counts(rows: Rows) -> FloatArray:
    """(R,): how many episodes have ended since the row before."""
    return np.diff(rows["epi"], prepend=0.0)


def trailing_mean(
    values: Line,
    weights: FloatArray,
    grid: FloatArray,
    width: float,
    fewest: float = FEWEST,
) -> FloatArray:
    """(G,) the weighted mean, at each x of `grid`, of the values in (x − width, x]; NaN
    if there are none. A window with fewer than `fewest` episodes is extended back to
    that many. Values of several Sessions may share an x. `weights` (R,): the number of
    episodes behind each value."""
    total = np.concatenate([[0.0], np.cumsum(values.y * weights)])
    episodes = np.concatenate([[0.0], np.cumsum(weights)])
    first = np.searchsorted(values.x, grid - width, side="right")
    after = np.searchsorted(values.x, grid, side="right")
    enough = np.searchsorted(episodes, episodes[after] - fewest, side="right") - 1
    first = np.minimum(first, np.maximum(enough, 0))
    count = episodes[after] - episodes[first]
    return np.where(
        count > 0, (total[after] - total[first]) / np.maximum(count, 1), np.nan
    )
