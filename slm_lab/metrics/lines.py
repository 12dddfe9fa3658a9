"""Lines of values over an axis, and their means over Sessions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray, IntArray


class Line(NamedTuple):
    """One Session's values over an axis: `x` (R,) not falling, `y` (R,) finite."""

    x: FloatArray
    y: FloatArray


class Spread(NamedTuple):
    """Mean and population standard deviation over a grid `x` (G,), of `sessions`
    Sessions each."""

    x: FloatArray
    mean: FloatArray
    std: FloatArray
    sessions: IntArray


def common_grid(lines: Sequence[Line], max_points: int | None = None) -> FloatArray:
    """Every x at which some Session has a row; `max_points` even steps if those are
    more."""
    grid = np.unique(np.concatenate([line.x for line in lines]))
    if max_points is None or len(grid) <= max_points:
        return grid
    return np.linspace(grid[0], grid[-1], max_points)


def interpolate(lines: Sequence[Line], grid: FloatArray) -> FloatArray:
    """(J, G): each of J lines interpolated linearly; NaN outside the Session's rows."""
    return np.stack(
        [np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in lines]
    )


def mean_lines(lines: Sequence[Line], group_of: Sequence[int]) -> list[Line]:
    """The mean of each group of lines, where more than half of the lines with points
    have data."""
    means = []
    groups: dict[int, list[Line]] = {group: [] for group in group_of}
    for line, group in zip(lines, group_of, strict=True):
        if line.x.size:
            groups[group].append(line)
    for members in filter(None, groups.values()):
        over = spread(members, common_grid(members))
        enough = 2 * over.sessions > len(members)
        means.append(Line(over.x[enough], over.mean[enough]))
    return means


def spread(lines: Sequence[Line], grid: FloatArray) -> Spread:
    """Mean and spread at each grid point over the Sessions that have data there."""
    values = interpolate(lines, grid)
    count = (~np.isnan(values)).sum(axis=0)
    known = count > 0
    values = values[:, known]
    return Spread(
        grid[known],
        mean=np.nanmean(values, axis=0),
        std=np.nanstd(values, axis=0),
        sessions=count[known],
    )
