"""Averages Sessions that wrote rows at different moments, on a common grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray, IntArray
from slm_lab.metrics.recent import FEWEST


class Line(NamedTuple):
    """One Session's values over an axis: `x` (R,) not falling, `y` (R,) finite."""

    x: FloatArray
    y: FloatArray


class Spread(NamedTuple):
    """Mean and population standard deviation over a grid `x` (G,), of `sessions` Sessions each."""

    x: FloatArray
    mean: FloatArray
    std: FloatArray
    sessions: IntArray


def common_grid(lines: Sequence[Line], max_points: int | None = None) -> FloatArray:
    """Every x at which some Session has a row; `max_points` even steps if those are more."""
    grid = np.unique(np.concatenate([line.x for line in lines]))
    if max_points is None or len(grid) <= max_points:
        return grid
    return np.linspace(grid[0], grid[-1], max_points)


def on_grid(lines: Sequence[Line], grid: FloatArray) -> FloatArray:
    """(J, G): each of J lines interpolated linearly; NaN outside the Session's rows."""
    return np.stack([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in lines])


def mean_lines(lines: Sequence[Line], group_of: Sequence[int]) -> list[Line]:
    """For each group of lines their mean, where more than half of those with points have data."""
    means = []
    for group in dict.fromkeys(group_of):
        grouped = zip(lines, group_of, strict=True)
        members = [line for line, each in grouped if each == group and line.x.size]
        if members:
            over = spread(members, common_grid(members))
            enough = 2 * over.sessions > len(members)
            means.append(Line(over.x[enough], over.mean[enough]))
    return means


def trailing_mean(
    values: Line, weights: FloatArray, grid: FloatArray, width: float, fewest: float = FEWEST
) -> FloatArray:
    """(G,): at each x of `grid` the weighted mean of the values in (x − width, x], NaN if there are
    none. A window with fewer than `fewest` episodes is extended back to that many.

    Values of several Sessions may share an x. `weights` (R,) are whole numbers: the episodes that
    each value is the mean of.
    """
    total = np.concatenate([[0.0], np.cumsum(values.y * weights)])
    episodes = np.concatenate([[0.0], np.cumsum(weights)])
    first = np.searchsorted(values.x, grid - width, side="right")
    after = np.searchsorted(values.x, grid, side="right")
    enough = np.searchsorted(episodes, episodes[after] - fewest, side="right") - 1
    first = np.minimum(first, np.maximum(enough, 0))
    count = episodes[after] - episodes[first]
    return np.where(count > 0, (total[after] - total[first]) / np.maximum(count, 1), np.nan)


def spread(lines: Sequence[Line], grid: FloatArray) -> Spread:
    """Mean and spread at each grid point over the Sessions that have data there."""
    values = on_grid(lines, grid)
    known = ~np.isnan(values)
    covered = known.any(axis=0)
    grid, values, known = grid[covered], values[:, covered], known[:, covered]
    count = known.sum(axis=0)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    deviation = np.where(known, values - mean, 0.0)
    return Spread(grid, mean, np.sqrt((deviation**2).sum(axis=0) / count), count)
