"""Several trainings over each other: a curve for each, with a band over its seeds."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.analysis.figure.axis import (
    Axis,
    Line,
    Spread,
    common_grid,
    decimate,
    on_grid,
    spread,
)
from slm_lab.analysis.figure.figure import (
    MAX_POINTS,
    Band,
    Curve,
    Figure,
    Panel,
    around,
    level,
)
from slm_lab.analysis.figure.layout import curves_panel, over_legend
from slm_lab.analysis.figure.look import PALETTE
from slm_lab.analysis.statistics import bootstrap_interval, interquartile_mean
from slm_lab.analysis.trial.trial_graph import middle_curves, without_ragged_ends
from slm_lab.core.text import count_text
from slm_lab.core.types import FloatArray

Middle: TypeAlias = Literal["mean", "iqm"]
"""What a curve shows of its seeds: their mean, or their interquartile mean."""

_BOOTSTRAP_POINTS = 250
"""The points of a curve with bootstrap intervals, each of which has its 2000
resamples."""
_FULL = 0.6
"""The share of colour that remains each time that the palette starts again."""


class Seeds(NamedTuple):
    """Trainings that differ in their seeds: a line of each that has points; `planned`
    counts all. `final_return` and `frames` (of all workers, at the end) are (S,). Of
    several environments they follow each other, as many of each as `tasks` says."""

    label: str
    lines: tuple[Line, ...]
    final_return: FloatArray
    frames: FloatArray
    planned: int
    tasks: tuple[int, ...] = ()

    @property
    def strata(self) -> tuple[int, ...]:
        """The number of seeds of each environment."""
        return self.tasks or (len(self.lines),)

    @property
    def of_tasks(self) -> list[FloatArray]:
        """The final returns of each environment, of the seeds that have one."""
        each_task = np.split(self.final_return, np.cumsum(self.strata)[:-1])
        return [finals[np.isfinite(finals)] for finals in each_task]


class Overlay(NamedTuple):
    """The curves of all groups, and what curves and bands are."""

    curves: list[Curve]
    subtitle: str


def overlay(
    groups: Sequence[Seeds],
    middle: Middle,
    generator: np.random.Generator,
    colours: Sequence[str] = (),
) -> Overlay:
    """A curve for each group, in order: with `mean` and two seeds or more a band of one
    standard deviation, with `iqm` a 95 % bootstrap interval; dashed, and without a
    band, where some seeds have no values. A group's colour is its label's place in
    `colours`, or its own place."""
    counts = {len(group.lines) for group in groups}
    curves: list[Curve] = []
    for number, (group, rng) in enumerate(
        zip(groups, generator.spawn(len(groups)), strict=True)
    ):
        look = look_of(group.label, colours.index(group.label) if colours else number)
        if len(counts) > 1 and not colours:
            look = look._replace(
                label=f"{group.label} ({count_text(len(group.lines), 'seed')})"
            )
        curves += _curves(group, look, middle, rng)
    subtitle = _subtitle(counts, middle)
    if any(curve.style == "dashed" for curve in curves):
        subtitle += "; dashed where not all have values"
    return Overlay(curves, subtitle)


def _curves(
    group: Seeds, look: Curve, middle: Middle, generator: np.random.Generator
) -> list[Curve]:
    """The solid curve of all seeds with its band; and the dashed one of some of
    them."""
    lines = group.lines
    if len(lines) == 1:
        only = decimate(lines[0])
        return [look._replace(x=only.x, mean=only.y)]
    points = MAX_POINTS if middle == "mean" else _BOOTSTRAP_POINTS
    over = without_ragged_ends(spread(lines, common_grid(lines, points)), len(lines))
    centre, band = over.mean, around(over.mean, over.std)
    if middle == "iqm":
        centre, band = _robust(group, over, generator)
    return middle_curves(look, over, centre, band, len(lines))


def _robust(
    group: Seeds, over: Spread, generator: np.random.Generator
) -> tuple[FloatArray, Band]:
    """The interquartile mean over the grid; its interval where all seeds have
    values."""
    values, full = on_grid(group.lines, over.x), over.sessions == len(group.lines)
    centre, low, high = (np.full_like(over.x, np.nan) for _ in range(3))
    for point in np.flatnonzero(~full):
        known = values[:, point]
        centre[point] = interquartile_mean(known[~np.isnan(known)])
    if full.any():
        whole = values[:, full]
        centre[full] = interquartile_mean(whole)
        ends = bootstrap_interval(
            whole, interquartile_mean, generator, strata=group.strata
        )
        low[full], high[full] = ends
    return centre, Band(low, high)


def look_of(label: str, number: int) -> Curve:
    """A curve without points, in a colour that none before has."""
    colours = len(PALETTE)
    turn, place = divmod(number, colours)
    # Every other turn is reversed: the two blues, which look most alike, are then far
    # apart.
    colour = colours * turn + (colours - 1 - place if turn % 2 else place)
    return Curve(
        label, np.empty(0), np.empty(0), colour=colour, tint=1.0 - float(_FULL**turn)
    )


def _subtitle(counts: set[int], middle: Middle) -> str:
    if counts == {1}:
        return "one training each"
    of = f" of {min(counts)} seeds each" if len(counts) == 1 else " of the seeds"
    if middle == "mean":
        return f"mean ± 1 std{of}"
    return f"interquartile mean{of}, 95 % bootstrap interval"


LETTERS = 8.0
"""The size of the letters on paper, in points."""
_STEPS = 201  # of a performance profile


def overlay_figure(
    panels: Mapping[str, Sequence[Seeds]],
    x: Axis,
    y: Axis,
    middle: Middle,
    generator: np.random.Generator,
    *,
    title: str,
    lines: Sequence[tuple[str, float]],
    log: bool,
    width: float | None,
    with_profile: bool,
) -> Figure:
    """A panel for each heading, over one legend. Groups with one label have one colour
    in all. `lines` are the name and the height of dashed lines; one with the heading of
    a panel is for that panel alone. `width` is in points, of a figure for paper.
    `with_profile` adds a panel with the performance profiles."""
    every = dict.fromkeys(group.label for groups in panels.values() for group in groups)
    colours = list(every) if len(panels) > 1 else []
    drawn, named, subtitles = list[Panel](), set[str](), list[str]()
    for heading, groups in panels.items():
        found = overlay(groups, middle, generator.spawn(1)[0], colours)
        here = [
            (name, at) for name, at in lines if name == heading or name not in panels
        ]
        levels = [
            level(at, found.curves, "" if name == heading else name)
            for name, at in here
        ]
        curves = list[Curve]()
        for curve in (*levels, *found.curves):
            curves.append(
                curve._replace(label="" if curve.label in named else curve.label)
            )
            named.add(curve.label)
        drawn.append(curves_panel(x.label, y.label, curves, heading, log=log))
        subtitles.append(found.subtitle)
        if with_profile:
            drawn.append(_profile(groups, generator))
    paper = {} if width is None else {"width": width, "letters": LETTERS}
    return over_legend(title, max(subtitles, key=len), drawn, **paper)


def _profile(groups: Sequence[Seeds], generator: np.random.Generator) -> Panel:
    """The share of seeds whose final return is above each threshold, with a 95 %
    bootstrap interval: performance profiles, §4.2 of arXiv:2108.13264."""
    returns = [
        0.0,
        1.0,
        *(x for group in groups for each in group.of_tasks for x in each),
    ]
    thresholds = np.linspace(min(returns), max(returns), _STEPS)
    curves = []
    for number, group in enumerate(groups):
        above = (group.final_return[:, None] > thresholds).astype(np.float64)
        own = generator.spawn(1)[0]
        ends = bootstrap_interval(
            above, lambda x: x.mean(axis=0), own, strata=group.strata
        )
        look = look_of("", number)
        curves.append(look._replace(x=thresholds, mean=above.mean(0), band=Band(*ends)))
    return curves_panel("normalised final return τ", "share of runs above τ", curves)
