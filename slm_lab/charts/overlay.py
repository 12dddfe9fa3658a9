"""The chart of several trainings over each other: a curve for each, with a band over
its seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.charts.axis import Axis
from slm_lab.charts.chart import (
    MAX_COLUMNS,
    MAX_POINTS,
    Cells,
    Chart,
    Curve,
    Ink,
    Panel,
    around,
    curves_panel,
    grid,
    level,
)
from slm_lab.charts.curves import MAX_RAGGED, common_spread, decimate, solid_and_dashed
from slm_lab.charts.look import OKABE_ITO
from slm_lab.charts.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
)
from slm_lab.core.text import count_text
from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line, Spread, interpolate

Aggregate: TypeAlias = Literal["mean", "iqm"]
"""The statistic over seeds that a curve shows: their mean or interquartile mean."""

_BOOTSTRAP_SEED = 0
_BOOTSTRAP_POINTS = 250
"""The points of a curve with bootstrap intervals, each of which has its 2000
resamples."""
_PALER = 0.6
"""The opacity is multiplied by this each time that the palette starts again."""
_NONE = np.empty(0)
_STEPS = 201  # of a performance profile
_NARROWEST = 160.0
"""The least width of a panel on paper, in 1/72 inch."""


class Seeds(NamedTuple):
    """Trainings that differ in their seeds: a line of each that has points; `planned`
    counts all. `final_return` and `frames` (of all workers, at the end) are (S,). Of
    several environments they follow each other, as many of each as `tasks` says."""

    label: str
    lines: tuple[Line, ...]
    final_return: FloatArray = _NONE
    frames: FloatArray = _NONE
    planned: int = 0
    tasks: tuple[int, ...] = ()
    pair_keys: tuple[tuple[str, int], ...] = ()
    """The key that each seed shares with the other of its pair, see
    `TrialCurves.pair_keys`."""
    are_forks: bool = False
    """Whether they are forks of other runs."""
    env: str = ""
    """Their environment, if it is one."""

    @property
    def strata(self) -> tuple[int, ...]:
        """The number of seeds of each environment."""
        return self.tasks or (len(self.lines),)

    @property
    def task_returns(self) -> list[FloatArray]:
        """The final returns of each environment, of the seeds that have one."""
        each_task = np.split(self.final_return, np.cumsum(self.strata)[:-1])
        return [finals[np.isfinite(finals)] for finals in each_task]


def overlay_chart(
    panels: Mapping[str, Sequence[Seeds]],
    x: Axis,
    y: Axis,
    aggregate: Aggregate,
    *,
    title: str,
    lines: Sequence[tuple[str, float]] = (),
    inks: Mapping[str, Ink] | None = None,
    ragged: float = MAX_RAGGED,
    log: bool = False,
    log_x: bool = False,
    width: float | None = None,
) -> Chart:
    """A panel for each heading, over one legend. Groups with one label have one colour
    in all. `inks` and `ragged` as for `overlay`. `lines` are the name and the height
    of dashed lines. A line whose name is the heading of a panel is drawn in that panel
    alone. `width` is in points, of a chart for paper. Groups over several environments
    also have a panel with their performance profiles."""
    every = [group for groups in panels.values() for group in groups]
    if len(panels) > 1 and inks is None:
        inks = inks_of(every)
    drawn: list[Panel] = []
    results: list[Curve] = []
    for heading, groups in panels.items():
        curves = overlay(groups, aggregate, inks, ragged)
        results += curves
        levels = [
            level(height, curves, name * (name != heading))
            for name, height in lines
            if curves and (name == heading or name not in panels)
        ]
        drawn.append(
            curves_panel(
                x.label,
                y.label,
                curves=[*levels, *curves],
                title=heading,
                log=log,
                log_x=log_x,
            )
        )
        if any(group.tasks for group in groups):
            drawn.append(_profile(groups))
    most = MAX_COLUMNS
    if width is not None:
        most = int(width / _NARROWEST)
    return Chart(
        title,
        overlay_text(every, aggregate, results),
        _rows(drawn, most),
        legend=True,
        paper_width=width,
    )


def _rows(panels: Sequence[Panel], most: int) -> Cells:
    """A grid, in which a y axis like the one to its left has no label."""
    columns = len(grid(panels, most)[0])
    relabelled = []
    for number, panel in enumerate(panels):
        label = panel.y.label
        if number % columns and label == panels[number - 1].y.label:
            label = ""
        relabelled.append(panel._replace(y=panel.y._replace(label=label)))
    return grid(relabelled, most)


def _profile(groups: Sequence[Seeds]) -> Panel:
    """Performance profiles, §4.2 of arXiv:2108.13264. They show the share of seeds
    whose final return is above each threshold, with a 95 % bootstrap interval."""
    returns = [finals for group in groups for finals in group.task_returns]
    ends = np.concatenate([[0.0, 1.0], *returns])
    thresholds = np.linspace(ends.min(), ends.max(), _STEPS)
    curves = []
    for number, group in enumerate(groups):
        above = (group.final_return[:, None] > thresholds).astype(np.float64)
        interval = bootstrap_interval(
            above,
            lambda shares: shares.mean(axis=0),
            np.random.default_rng(_BOOTSTRAP_SEED),
            strata=group.strata,
        )
        mean = above.mean(axis=0)
        curves.append(Curve("", thresholds, mean, interval, ink=ink_of(number)))
    return curves_panel("normalised final return τ", "share of runs above τ", curves)


def overlay(
    groups: Sequence[Seeds],
    aggregate: Aggregate,
    inks: Mapping[str, Ink] | None = None,
    ragged: float = MAX_RAGGED,
) -> list[Curve]:
    """A curve for each group, in order. With `mean` and two seeds or more it has a band
    of one standard deviation. With `iqm` the band is a 95 % bootstrap interval. Where
    some seeds have no values the curve is dashed and has no band; such ends are left
    out up to the share `ragged` of the axis. `inks` are the colours of the labels;
    without them a label also has the number of seeds, if groups differ in it."""
    curves: list[Curve] = []
    has_counts = inks is None and len({len(group.lines) for group in groups}) > 1
    colours = inks or inks_of(groups)
    for group in groups:
        label = group.label
        if has_counts:
            label = f"{label} ({count_text(len(group.lines), 'seed')})"
        look = Curve(label, _NONE, _NONE, ink=colours[group.label])
        curves += _curves(group, look, aggregate, ragged)
    return curves


def inks_of(groups: Iterable[Seeds]) -> dict[str, Ink]:
    """A colour for each label."""
    labels = dict.fromkeys(group.label for group in groups)
    return {label: ink_of(number) for number, label in enumerate(labels)}


def _curves(
    group: Seeds,
    look: Curve,
    aggregate: Aggregate,
    ragged: float,
) -> list[Curve]:
    """The solid curve of all seeds with its band; and the dashed one of some of
    them."""
    lines = group.lines
    if len(lines) == 1:
        only = decimate(lines[0])
        return [look._replace(x=only.x, mean=only.y)]
    points = _BOOTSTRAP_POINTS
    if aggregate == "mean":
        points = MAX_POINTS
    over = common_spread(lines, points, ragged)
    centre = over.mean
    band = around(over.mean, over.std)
    if aggregate == "iqm":
        centre, band = _robust(group, over)
    whole = look._replace(x=over.x, mean=centre, band=band)
    return solid_and_dashed(whole, over.sessions == len(lines))


def _robust(group: Seeds, over: Spread) -> tuple[FloatArray, Interval]:
    """The interquartile mean over the grid; its interval where all seeds have
    values."""
    values = interpolate(group.lines, over.x)
    full = over.sessions == len(group.lines)
    centre, low, high = (np.full_like(over.x, np.nan) for _ in range(3))
    for point in np.flatnonzero(~full):
        known = values[:, point]
        centre[point] = interquartile_mean(known[~np.isnan(known)])
    if full.any():
        whole = values[:, full]
        centre[full] = interquartile_mean(whole)
        low[full], high[full] = bootstrap_interval(
            whole,
            interquartile_mean,
            np.random.default_rng(_BOOTSTRAP_SEED),
            strata=group.strata,
        )
    return centre, Interval(low, high)


def ink_of(number: int) -> Ink:
    """A colour that no curve before has."""
    turn, place = divmod(number, len(OKABE_ITO))
    # Every other turn is reversed: the two blues, which look most alike, are then far
    # apart.
    if turn % 2:
        place = len(OKABE_ITO) - 1 - place
    return Ink(place, _PALER**turn)


def overlay_text(
    groups: Iterable[Seeds], aggregate: Aggregate, curves: Sequence[Curve]
) -> str:
    """What the curves and bands of groups are."""
    counts = {len(group.lines) for group in groups}
    of = " of the seeds"
    if len(counts) == 1:
        of = f" of {min(counts)} seeds each"
    subtitle = f"interquartile mean{of}, 95 % bootstrap interval"
    if counts == {1}:
        subtitle = "one training each"
    elif aggregate == "mean":
        subtitle = f"mean ± 1 std{of}"
    if any(curve.style == "dashed" for curve in curves):
        subtitle += "; dashed where not all have values"
    return subtitle
