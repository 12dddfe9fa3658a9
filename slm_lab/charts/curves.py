"""Lines of Sessions or seeds as curves: solid where all have values, else dashed."""

from collections.abc import Sequence

import numpy as np

from slm_lab.charts.chart import MAX_POINTS, Curve
from slm_lab.charts.statistics import Interval
from slm_lab.core.types import BoolArray
from slm_lab.metrics.lines import Line, Spread, common_grid, spread

MAX_RAGGED = 0.05
"""The share of the axis that is left out at its ends if not all Sessions reach into
it."""


def decimate(values: Line, max_points: int = MAX_POINTS) -> Line:
    """Keeps at most `max_points` of the points, evenly chosen, the first and last among
    them."""
    count = values.x.size
    if count <= max_points:
        return values
    chosen = np.linspace(0, count - 1, max_points).round().astype(np.int64)
    return Line(values.x[chosen], values.y[chosen])


def common_spread(
    lines: Sequence[Line], points: int, ragged: float = MAX_RAGGED
) -> Spread:
    """Mean and deviation of lines over at most so many points. Ends that not all lines
    reach are left out, if they are at most the share `ragged` of the axis."""
    over = spread(lines, common_grid(lines, points))
    full = np.flatnonzero(over.sessions == len(lines))
    if not full.size:
        return over
    x = over.x
    allowed = ragged * (x[-1] - x[0])
    first = 0
    last = len(x) - 1
    if x[full[0]] - x[0] <= allowed:
        first = int(full[0])
    if x[-1] - x[full[-1]] <= allowed:
        last = int(full[-1])
    kept = slice(first, last + 1)
    return Spread(
        x=x[kept],
        mean=over.mean[kept],
        std=over.std[kept],
        sessions=over.sessions[kept],
    )


def solid_and_dashed(whole: Curve, full: BoolArray) -> list[Curve]:
    """Splits a curve (G,) into two. One is solid and has the band, where all lines have
    data: where `full` (G,). The other is dashed, where only some have data."""
    curves: list[Curve] = []
    if full.any():
        band = None
        if whole.band is not None:
            low, high = whole.band
            band = Interval(np.where(full, low, np.nan), np.where(full, high, np.nan))
        mean = np.where(full, whole.mean, np.nan)
        curves.append(whole._replace(mean=mean, band=band))
    if not full.all():
        # and a point more on each side, so that the dashed line joins the solid one
        partly = ~full
        partly[1:] |= ~full[:-1]
        partly[:-1] |= ~full[1:]
        dashed = whole._replace(
            label="" if curves else whole.label,
            mean=np.where(partly, whole.mean, np.nan),
            band=None,
            style="dashed",
        )
        curves.append(dashed)
    return curves
