"""Several trainings in one pair of axes: a curve for each, with what its seeds tell in a band."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np

from slm_lab.analysis.figure.axis import (
    EVAL_RETURNS,
    RETURNS,
    Axis,
    frames,
    total_frames,
    wall_clock,
)
from slm_lab.analysis.figure.figure import MAX_POINTS, PALETTE, Curve, Figure
from slm_lab.analysis.figure.grid import Line, Spread, common_grid, on_grid, spread
from slm_lab.analysis.statistics import bootstrap_interval, interquartile_mean
from slm_lab.analysis.trial.session_graph import decimate
from slm_lab.analysis.trial.trial_graph import beside, without_ragged_ends
from slm_lab.core.types import BoolArray, FloatArray

Middle: TypeAlias = Literal["mean", "iqm"]
"""What a curve shows of its seeds: their mean, or their interquartile mean."""

X_WORDS = ("frames", "total_frames", "wall_t")
Y_AXES = {axis.file: axis for axis in (RETURNS[1], RETURNS[0], EVAL_RETURNS)}
"""What can be drawn, by its word; the first is drawn if nothing is said."""

_BOOTSTRAP_POINTS = 250
"""Of a curve with bootstrap intervals: more cannot be seen, and each has its 2000 resamples."""
_FULL = 0.6
"""Share of its colour that is left where all colours of the palette are taken, again each time."""


@final
@dataclass(frozen=True, eq=False)
class Seeds:
    """Independent trainings that differ in their seeds: a line of each that has any points.

    `final_return` and `frames` are (S,); `frames` are those of all its workers by then;
    `planned` counts those that have no points yet, too.
    """

    label: str
    lines: tuple[Line, ...]
    final_return: FloatArray
    frames: FloatArray
    planned: int


@final
@dataclass(frozen=True, eq=False)
class Band:
    """What lies around a curve, (P,) each; NaN where nothing does."""

    low: FloatArray
    high: FloatArray


@final
@dataclass(frozen=True, eq=False)
class Overlay:
    """A figure, and for each of its curves the band around it, if it has one.

    Curves of the same `colour` belong together; those of one palette colour differ in their tint.
    """

    figure: Figure
    bands: tuple[Band | None, ...]

    @property
    def in_view(self) -> tuple[Curve, ...]:
        """The curves, and one that is nowhere (its x is NaN), for which there is as much room on
        the y axis as the bands need."""
        ends = [end for band in self.bands if band is not None for end in (band.low, band.high)]
        heights = np.concatenate([np.empty(0), *ends])
        return (*self.figure.curves, Curve("", np.full_like(heights, np.nan), heights))


def x_axis(word: str, longest: float) -> Axis:
    """The x axis of a word; `longest` is the training time, in s, that has to fit on it."""
    axes = {"frames": frames("per Session"), "total_frames": total_frames()}
    return axes[word] if word in axes else wall_clock(longest)


def overlay(
    groups: Sequence[Seeds],
    x: Axis,
    y: Axis,
    title: str,
    middle: Middle,
    generator: np.random.Generator,
) -> Overlay:
    """A curve for each group, in order: with `mean` and two seeds or more a band of one standard
    deviation, with `iqm` a 95 % bootstrap interval. It is dashed, and without a band, where not
    all seeds of the group have values.
    """
    counts = {len(group.lines) for group in groups}
    strokes: list[tuple[Curve, Band | None]] = []
    for number, its_own in enumerate(generator.spawn(len(groups))):
        group = groups[number]
        look = _look(group.label if len(counts) == 1 else _with_count(group), number)
        strokes += _strokes(group.lines, look, middle, its_own)
    subtitle = _subtitle(counts, middle)
    if any(curve.style == "dashed" for curve, _ in strokes):
        subtitle += "; dashed where not all have values"
    curves, bands = zip(*strokes, strict=True)
    return Overlay(Figure(title, subtitle, x.label, y.label, curves), bands)


def _strokes(
    lines: Sequence[Line], look: Curve, middle: Middle, generator: np.random.Generator
) -> list[tuple[Curve, Band | None]]:
    """The solid curve of all seeds and its band; and the dashed one of some of them."""
    if len(lines) == 1:
        only = decimate(lines[0])
        return [(replace(look, x=only.x, mean=only.y), None)]
    points = MAX_POINTS if middle == "mean" else _BOOTSTRAP_POINTS
    over = without_ragged_ends(spread(lines, common_grid(lines, points)), len(lines))
    full = over.sessions == len(lines)
    centre, band = over.mean, Band(over.mean - over.std, over.mean + over.std)
    if middle == "iqm":
        centre, band = _robust(lines, over, full, generator)
    strokes: list[tuple[Curve, Band | None]] = []
    if full.any():
        hidden = Band(*(np.where(full, end, np.nan) for end in (band.low, band.high)))
        strokes.append((replace(look, x=over.x, mean=np.where(full, centre, np.nan)), hidden))
    if not full.all():
        label = "" if strokes else look.label
        partly = np.where(beside(full), centre, np.nan)
        strokes.append((replace(look, label=label, x=over.x, mean=partly, style="dashed"), None))
    return strokes


def _robust(
    lines: Sequence[Line], over: Spread, full: BoolArray, generator: np.random.Generator
) -> tuple[FloatArray, Band]:
    """The interquartile mean over the grid; its interval where all seeds have values."""
    values = on_grid(lines, over.x)
    centre, low, high = (np.full_like(over.x, np.nan) for _ in range(3))
    for point in np.flatnonzero(~full):
        known = values[:, point]
        centre[point] = interquartile_mean(known[~np.isnan(known)])
    if full.any():
        whole = values[:, full]
        centre[full] = interquartile_mean(whole)
        low[full], high[full] = bootstrap_interval(whole, interquartile_mean, generator)
    return centre, Band(low, high)


def _look(label: str, number: int) -> Curve:
    """A curve without points, in a colour that none before has."""
    colours = len(PALETTE)
    turn, place = divmod(number, colours)
    # Every other turn goes backwards: what looks most alike, two blues, is then far apart.
    colour = colours * turn + (colours - 1 - place if turn % 2 else place)
    return Curve(label, np.empty(0), np.empty(0), colour=colour, tint=1.0 - float(_FULL**turn))


def _with_count(group: Seeds) -> str:
    seeds = len(group.lines)
    return f"{group.label} ({seeds} seed{'' if seeds == 1 else 's'})"


def _subtitle(counts: set[int], middle: Middle) -> str:
    """What curves and bands are."""
    if counts == {1}:
        return "one training each"
    of = f" of {min(counts)} seeds each" if len(counts) == 1 else " of the seeds"
    if middle == "mean":
        return f"mean ± 1 std{of}"
    return f"interquartile mean{of}, 95 % bootstrap interval"
