"""Draws curves between two axes onto a canvas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.canvas import Canvas
from slm_lab.analysis.figure import (
    Curve,
    Style,
    colour_of,
    in_legend_order,
    runs,
    tick_text,
    y_limits,
)
from slm_lab.core.types import FloatArray

_LINE_WIDTH: dict[Style, float] = {"solid": 0.15, "dashed": 0.115, "faint": 0.06}  # of a letter
_DASH = (3.0, 1.5)  # of the line's width
_CROWDED = 0.6  # of a line's width, if it has more points than the panel has pixels across
_HALF_DIGIT = 0.365  # half of the height of a digit, of a letter's size


class Box(NamedTuple):
    """A rectangle on the canvas, in pixels from its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float


@final
@dataclass(frozen=True)
class PanelStyle:
    """Size of the letters in pixels, and how many ticks an axis has at most."""

    text: float
    x_ticks: int
    y_ticks: int


def draw_panel(
    canvas: Canvas,
    box: Box,
    curves: Sequence[Curve],
    ends: tuple[float, float],
    note: str,
    style: PanelStyle,
    *,
    x_numbers: bool = True,
) -> None:
    """Grid, numbers and curves in `box`; `ends` are those of the x axis.

    Numbers stand to the left of the box and, with `x_numbers`, below it. `note` stands in its
    middle, in place of curves, if there are none.
    """
    bottom = np.array([[box.left, box.bottom], [box.left + box.width, box.bottom]])
    if curves:
        y_ends = y_limits(curves)
        _draw_grid(canvas, box, ends, y_ends, style, x_numbers)
    canvas.line(bottom, look.MUTED, 1.0)
    if not curves:
        x, y = box.left + box.width / 2, box.bottom + box.height / 2
        canvas.text(x, y, note, style.text * 1.15, look.MUTED, align="centre")
        return
    in_front = sorted(curves, key=lambda curve: curve.style != "faint")
    for curve in in_front:
        _draw_band(canvas, box, curve, ends, y_ends)
    for curve in in_front:
        _draw_line(canvas, box, curve, ends, y_ends, style.text)


def draw_legend(canvas: Canvas, curves: Sequence[Curve], x: float, y: float, size: float) -> float:
    """Writes what the labelled curves are, side by side from (x, y) on; returns where it ends."""
    for curve in in_legend_order(curves):
        sample = np.array([[x, y + _HALF_DIGIT * size], [x + 1.6 * size, y + _HALF_DIGIT * size]])
        if curve.std is not None:
            edge = np.array([[0, 0.3 * size]])
            outline = np.concatenate([sample - edge, (sample + edge)[::-1]])
            canvas.area(outline, colour_of(curve), look.BAND_OPACITY)
        _stroke(canvas, sample, curve, size)
        canvas.text(x + 2.1 * size, y, curve.label, size, look.INK)
        x += 2.1 * size + canvas.text_width(curve.label, size) + 1.6 * size
    return x - 1.6 * size


def legend_width(canvas: Canvas, curves: Sequence[Curve], size: float) -> float:
    """Pixels that `draw_legend` takes from left to right."""
    labels = [curve.label for curve in curves if curve.label]
    return sum(3.7 * size + canvas.text_width(label, size) for label in labels) - 1.6 * size


def _draw_grid(
    canvas: Canvas,
    box: Box,
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    style: PanelStyle,
    x_numbers: bool,
) -> None:
    size = style.text
    xs, ys = ticks(x_ends, style.x_ticks), ticks(y_ends, style.y_ticks)
    x_size, y_size = max(map(abs, x_ends)), max(map(abs, y_ends))
    for value in xs:
        x = box.left + _share(value, x_ends) * box.width
        canvas.line(np.array([[x, box.bottom], [x, box.bottom + box.height]]), look.GRID, 1.2)
        if x_numbers:
            below = box.bottom - 1.35 * size
            canvas.text(x, below, tick_text(value, x_size), size, look.INK, align="centre")
    for value in ys:
        y = box.bottom + _share(value, y_ends) * box.height
        canvas.line(np.array([[box.left, y], [box.left + box.width, y]]), look.GRID, 1.2)
        beside, base = box.left - 0.5 * size, y - _HALF_DIGIT * size
        canvas.text(beside, base, tick_text(value, y_size), size, look.INK, align="right")


def ticks(ends: tuple[float, float], most: int) -> list[float]:
    """Round numbers between the `ends` of an axis, `most` of them at most."""
    from matplotlib.ticker import MaxNLocator

    values = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(*ends)
    return [float(value) for value in values if ends[0] <= value <= ends[1]]


def _share(value: float, ends: tuple[float, float]) -> float:
    return (value - ends[0]) / (ends[1] - ends[0])


def _to_pixels(
    x: FloatArray, y: FloatArray, box: Box, x_ends: tuple[float, float], y_ends: tuple[float, float]
) -> FloatArray:
    across = box.left + (x - x_ends[0]) / (x_ends[1] - x_ends[0]) * box.width
    up = box.bottom + (y - y_ends[0]) / (y_ends[1] - y_ends[0]) * box.height
    return np.column_stack([across, up])


def _draw_band(
    canvas: Canvas,
    box: Box,
    curve: Curve,
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
) -> None:
    if curve.std is None:
        return
    low = _to_pixels(curve.x, curve.mean - curve.std, box, x_ends, y_ends)
    high = _to_pixels(curve.x, curve.mean + curve.std, box, x_ends, y_ends)
    for part in runs(np.isfinite(low[:, 1])):
        if part.stop - part.start == 1:  # a band of one point has no width
            canvas.line(np.concatenate([low[part], high[part]]), colour_of(curve), 2.0, 0.5)
        outline = np.concatenate([low[part], high[part][::-1]])
        canvas.area(outline, colour_of(curve), look.BAND_OPACITY)


def _draw_line(
    canvas: Canvas,
    box: Box,
    curve: Curve,
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    size: float,
) -> None:
    points = _to_pixels(curve.x, curve.mean, box, x_ends, y_ends)
    crowded = len(points) > box.width
    _stroke(canvas, points, curve, size * (_CROWDED if crowded else 1.0))
    for stretch in runs(np.isfinite(curve.mean)):
        if stretch.stop - stretch.start == 1:  # a line of one point has no length
            x, y = points[stretch.start]
            canvas.dot(float(x), float(y), colour_of(curve), 0.45 * size, _opacity(curve))


def _stroke(canvas: Canvas, points: FloatArray, curve: Curve, size: float) -> None:
    width = _LINE_WIDTH[curve.style] * size
    dash = [length * width for length in _DASH] if curve.style == "dashed" else None
    canvas.line(points, colour_of(curve), width, _opacity(curve), dash)


def _opacity(curve: Curve) -> float:
    return look.FAINT_OPACITY if curve.style == "faint" else 1.0
