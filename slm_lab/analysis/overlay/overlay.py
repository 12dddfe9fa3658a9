"""Several trainings over each other: a curve for each, with a band over its seeds."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.analysis.figure.axis import (
    EVAL_RETURNS,
    RETURNS,
    TOTAL_FRAMES,
    Axis,
    frames,
    wall_clock,
)
from slm_lab.analysis.figure.figure import MAX_POINTS, Band, Curve, around
from slm_lab.analysis.figure.grid import Line, Spread, common_grid, on_grid, spread
from slm_lab.analysis.figure.look import PALETTE
from slm_lab.analysis.statistics import bootstrap_interval, interquartile_mean
from slm_lab.analysis.table import count_text
from slm_lab.analysis.trial.session_graph import decimate
from slm_lab.analysis.trial.trial_graph import beside, without_ragged_ends
from slm_lab.core.types import BoolArray, FloatArray

Middle: TypeAlias = Literal["mean", "iqm"]
"""What a curve shows of its seeds: their mean, or their interquartile mean."""

X_WORDS = ("frames", "total_frames", "wall_t")
Y_AXES = {axis.file: axis for axis in (RETURNS[1], RETURNS[0], EVAL_RETURNS)}
"""What can be drawn, by the word in the command; the first is the default."""

_BOOTSTRAP_POINTS = 250
"""The points of a curve with bootstrap intervals, each of which has its 2000 resamples."""
_FULL = 0.6
"""The share of colour that remains each time that the palette starts again."""


class Seeds(NamedTuple):
    """Trainings that differ in their seeds: a line of each that has points; `planned` counts all.
    `final_return` and `frames` (of all workers, at the end) are (S,).

    Of several environments they follow each other, as many of each as `tasks` says.
    """

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
        """The final returns of each environment."""
        return np.split(self.final_return, np.cumsum(self.strata)[:-1])


class Overlay(NamedTuple):
    """The curves of all groups, and what curves and bands are."""

    curves: list[Curve]
    subtitle: str


def x_axis(word: str, longest: float) -> Axis:
    """The x axis of a word; `longest` is the training time, in s, that has to fit on it."""
    axes = {"frames": frames("per Session"), "total_frames": TOTAL_FRAMES}
    return axes[word] if word in axes else wall_clock(longest)


def overlay(
    groups: Sequence[Seeds],
    middle: Middle,
    generator: np.random.Generator,
    colours: Sequence[str] = (),
) -> Overlay:
    """A curve for each group, in order: with `mean` and two seeds or more a band of one standard
    deviation, with `iqm` a 95 % bootstrap interval. It is dashed, and without a band, where not
    all seeds of the group have values.

    The colour of a group is the place of its label in `colours`, by default its own place.
    """
    counts = {len(group.lines) for group in groups}
    curves: list[Curve] = []
    for number, (group, rng) in enumerate(zip(groups, generator.spawn(len(groups)), strict=True)):
        look = look_of(group.label, colours.index(group.label) if colours else number)
        if len(counts) > 1 and not colours:
            look = look._replace(label=f"{group.label} ({count_text(len(group.lines), 'seed')})")
        curves += _curves(group, look, middle, rng)
    subtitle = _subtitle(counts, middle)
    if any(curve.style == "dashed" for curve in curves):
        subtitle += "; dashed where not all have values"
    return Overlay(curves, subtitle)


def _curves(
    group: Seeds, look: Curve, middle: Middle, generator: np.random.Generator
) -> list[Curve]:
    """The solid curve of all seeds with its band; and the dashed one of some of them."""
    lines = group.lines
    if len(lines) == 1:
        only = decimate(lines[0])
        return [look._replace(x=only.x, mean=only.y)]
    points = MAX_POINTS if middle == "mean" else _BOOTSTRAP_POINTS
    over = without_ragged_ends(spread(lines, common_grid(lines, points)), len(lines))
    full = over.sessions == len(lines)
    centre, band = over.mean, around(over.mean, over.std)
    if middle == "iqm":
        centre, band = _robust(group, over, full, generator)
    curves: list[Curve] = []
    if full.any():
        mean, *ends = (np.where(full, values, np.nan) for values in (centre, *band))
        curves.append(look._replace(x=over.x, mean=mean, band=Band(*ends)))
    if not full.all():
        label = "" if curves else look.label
        partly = np.where(beside(full), centre, np.nan)
        curves.append(look._replace(label=label, x=over.x, mean=partly, style="dashed"))
    return curves


def _robust(
    group: Seeds, over: Spread, full: BoolArray, generator: np.random.Generator
) -> tuple[FloatArray, Band]:
    """The interquartile mean over the grid; its interval where all seeds have values."""
    values = on_grid(group.lines, over.x)
    centre, low, high = (np.full_like(over.x, np.nan) for _ in range(3))
    for point in np.flatnonzero(~full):
        known = values[:, point]
        centre[point] = interquartile_mean(known[~np.isnan(known)])
    if full.any():
        whole = values[:, full]
        centre[full] = interquartile_mean(whole)
        ends = bootstrap_interval(whole, interquartile_mean, generator, strata=group.strata)
        low[full], high[full] = ends
    return centre, Band(low, high)


def look_of(label: str, number: int) -> Curve:
    """A curve without points, in a colour that none before has."""
    colours = len(PALETTE)
    turn, place = divmod(number, colours)
    # Every other turn is reversed: the two blues, which look most alike, are then far apart.
    colour = colours * turn + (colours - 1 - place if turn % 2 else place)
    return Curve(label, np.empty(0), np.empty(0), colour=colour, tint=1.0 - float(_FULL**turn))


def _subtitle(counts: set[int], middle: Middle) -> str:
    """What curves and bands are."""
    if counts == {1}:
        return "one training each"
    of = f" of {min(counts)} seeds each" if len(counts) == 1 else " of the seeds"
    if middle == "mean":
        return f"mean ± 1 std{of}"
    return f"interquartile mean{of}, 95 % bootstrap interval"
