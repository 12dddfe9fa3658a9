"""Draws the graph of a search as PNG: a row for each metric, a column for each variable."""

from dataclasses import dataclass
from typing import final

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.canvas import Canvas
from slm_lab.analysis.experiment_figure import AxisOf, ExperimentFigure, number
from slm_lab.analysis.figure import tick_text
from slm_lab.analysis.panel_png import Box, ticks
from slm_lab.analysis.scale import Scale
from slm_lab.analysis.shade import shade
from slm_lab.core.types import FloatArray

_SIDE, _TOP, _HEADING = 34, 152, 64
_LEFT, _RIGHT, _GAP = 136, 18, 16  # of the panels: numbers and names, the margin, between two
_PANELS_WIDTH, _NARROWEST, _WIDEST = 1410, 216, 746  # of all together, and of one
_HEIGHTS = {1: 420, 2: 320, 3: 250}  # of as many rows
_LOW = 186  # of more
_TEXT, _NAME, _SMALLEST = 15, 18, 11
_DOTS = ((40, 12.0), (120, 10.0), (250, 8.0))  # diameters of up to so many
_TINY = 6.0
_OPACITY = 0.9
_HALF_DIGIT = 0.365
_KEY = 300  # pixels of the scale of colours, if there is room
_KEY_STEPS = 60
_TICKS, _FEW_TICKS = 5, 3  # on an axis, and on one whose numbers have no room for more
_SHORT = 260  # pixels of a variable's axis


@final
@dataclass(frozen=True)
class _Foot:
    """The words below a column: of so many pixels, across or, where they have no room, upwards."""

    size: float
    upwards: bool
    height: float


def render_experiment_png(figure: ExperimentFigure) -> bytes:
    """The figure as the bytes of a PNG file, as wide and high as variables and metrics need."""
    rows, columns = max(len(figure.metrics), 1), max(len(figure.variables), 1)
    wide = min(max(_PANELS_WIDTH / columns, _NARROWEST), _WIDEST)
    high = _HEIGHTS.get(rows, _LOW)
    width = round(_LEFT + columns * wide + _RIGHT)
    measure = Canvas(8, 8)
    feet = [_foot(measure, axis.scale, wide - _GAP) for axis in figure.variables]
    names = max([each.height for each in feet], default=0.0)
    canvas = Canvas(width, round(_TOP + _HEADING + rows * high + names + 2.6 * _NAME))
    _head(canvas, figure)
    if not figure.metrics:
        middle = _LEFT + (width - _LEFT) / 2, (canvas.height - _TOP) / 2
        canvas.text(*middle, "no results yet", 22, look.MUTED, align="centre")
        return canvas.png()
    for j, (variable, words) in enumerate(zip(figure.variables, feet, strict=True)):
        left, top = _LEFT + j * wide, canvas.height - _TOP - _HEADING
        column = Box(left, top - rows * high, wide - _GAP, float(high - _GAP))
        for i, metric in enumerate(figure.metrics):
            box = column._replace(bottom=top - (i + 1) * high + _GAP)
            _draw_panel(canvas, box, figure, variable, metric)
            if not j:
                _name_row(canvas, box, metric)
        column = column._replace(bottom=column.bottom + _GAP, height=column.height - _GAP)
        _head_column(canvas, column, variable, top)
        _draw_values(canvas, column, variable.scale, words)
        letters = canvas.fitting(variable.name, _NAME, column.width)
        x, y = column.left + column.width / 2, column.bottom - names - 1.5 * _NAME
        canvas.text(x, y, variable.name, letters, look.MUTED, align="centre")
    return canvas.png()


def _head(canvas: Canvas, figure: ExperimentFigure) -> None:
    """Title and counts; below them what the dots mean."""
    room, top = canvas.width - 2.0 * _SIDE, canvas.height
    title, subtitle = figure.title, figure.subtitle
    letters = canvas.fitting(title, 30, room, bold=True)
    canvas.text(_SIDE, top - 54, title, letters, look.INK, bold=True)
    canvas.text(_SIDE, top - 90, subtitle, canvas.fitting(subtitle, 20, room), look.MUTED)
    if not figure.trials:
        return
    x, y = float(_SIDE), top - 130.0
    for filled, words in ((True, "whole budget spent"), (False, "stopped early, or not ended")):
        if filled in figure.filled:
            _dot(canvas, x + 8, y + 6, look.MUTED, 13.0, filled)
            canvas.text(x + 22, y, words, 17, look.INK)
            x += 22 + canvas.text_width(words, 17) + 28
    _draw_key(canvas, figure, x, y)


def _draw_key(canvas: Canvas, figure: ExperimentFigure, x: float, y: float) -> None:
    """The colours from the least to the most."""
    shading = figure.shading
    low, high = (number(end) for end in shading.ends)
    canvas.text(x, y, f"{shading.name}  {low}", 17, look.INK)
    x += canvas.text_width(f"{shading.name}  {low}", 17) + 10
    length = min(_KEY, canvas.width - _SIDE - 10 - canvas.text_width(high, 17) - x)
    for i in range(_KEY_STEPS):
        part = length / _KEY_STEPS
        left, right = x + i * part, x + (i + 1) * part
        corners = [[left, y - 2], [right, y - 2], [right, y + 14], [left, y + 14]]
        canvas.area(np.array(corners), shade(i / (_KEY_STEPS - 1)))
    canvas.text(x + length + 10, y, high, 17, look.INK)


def _draw_panel(
    canvas: Canvas, box: Box, figure: ExperimentFigure, variable: AxisOf, metric: AxisOf
) -> None:
    """Grid and dots of one metric over one variable."""
    right, top = box.left + box.width, box.bottom + box.height
    for x, _ in _places(variable.scale, box.left, box.width, _fitting_ticks(box.width)):
        canvas.line(np.array([[x, box.bottom], [x, top]]), look.GRID, 1.2)
    for y, _ in _places(metric.scale, box.bottom, box.height):
        canvas.line(np.array([[box.left, y], [right, y]]), look.GRID, 1.2)
    canvas.line(np.array([[box.left, box.bottom], [right, box.bottom]]), look.MUTED, 1.0)
    xs = _along(variable.scale.beside, variable.scale, box.left, box.width)
    ys = _along(metric.scale.at, metric.scale, box.bottom, box.height)
    diameter = next((size for most, size in _DOTS if len(xs) <= most), _TINY)
    dots = zip(xs.tolist(), ys.tolist(), figure.shading.colours, figure.filled, strict=True)
    for x, y, colour, filled in dots:
        if np.isfinite(x) and np.isfinite(y):
            _dot(canvas, x, y, colour, diameter, filled)


def _dot(canvas: Canvas, x: float, y: float, colour: str, diameter: float, filled: bool) -> None:
    if filled:
        canvas.dot(x, y, colour, diameter, _OPACITY)
        return
    angle = np.linspace(0, 2 * np.pi, 25)
    inner = 0.82 * diameter / 2
    circle = np.column_stack([x + inner * np.cos(angle), y + inner * np.sin(angle)])
    canvas.line(circle, colour, 0.18 * diameter)


def _name_row(canvas: Canvas, box: Box, metric: AxisOf) -> None:
    largest = max(map(abs, metric.scale.ends))
    for y, value in _places(metric.scale, box.bottom, box.height):
        words = tick_text(value, largest)
        base = y - _HALF_DIGIT * _TEXT
        canvas.text(box.left - 8, base, words, _TEXT, look.INK, align="right")
    letters = canvas.fitting(metric.name, _NAME, box.height + _GAP)
    middle = box.bottom + box.height / 2
    canvas.text(_SIDE + 6, middle, metric.name, letters, look.INK, align="centre", upwards=True)


def _head_column(canvas: Canvas, box: Box, variable: AxisOf, top: float) -> None:
    """The variable and its importance above the column."""
    letters = canvas.fitting(variable.name, _NAME + 1, box.width, bold=True)
    canvas.text(box.left, top + 37, variable.name, letters, look.INK, bold=True)
    letters = canvas.fitting(variable.note, _TEXT + 1, box.width)
    canvas.text(box.left, top + 15, variable.note, letters, look.MUTED)


def _draw_values(canvas: Canvas, box: Box, scale: Scale, foot: _Foot) -> None:
    for x, words in _labels(scale, box.left, box.width):
        if foot.upwards:
            y = box.bottom - 8 - canvas.text_width(words, foot.size)
            across = x + _HALF_DIGIT * foot.size
            canvas.text(across, y, words, foot.size, look.INK, upwards=True)
        else:
            half = canvas.text_width(words, foot.size) / 2 - 0.4 * _GAP
            inside = min(max(x, box.left + half), box.left + box.width - half)
            y = box.bottom - 6 - foot.size
            canvas.text(inside, y, words, foot.size, look.INK, align="centre")


def _foot(canvas: Canvas, scale: Scale, width: float) -> _Foot:
    """How the words below an axis of `width` pixels are written."""
    labels = [words for _, words in _labels(scale, 0.0, width)]
    across = float(_TEXT) + 8
    if not scale.categories:
        return _Foot(_TEXT, False, across)
    room = width / len(labels) - 8
    fitting = min(canvas.fitting(words, _TEXT, room) for words in labels)
    if fitting >= _SMALLEST:
        return _Foot(fitting, False, across)
    size = min(float(_TEXT), max(room + 8, 9.0))
    return _Foot(size, True, max(canvas.text_width(words, size) for words in labels) + 14)


def _labels(scale: Scale, start: float, length: float) -> list[tuple[float, str]]:
    """Where on an axis of `length` pixels which words stand."""
    if scale.ticks:
        at = _along(np.array([place for place, _ in scale.ticks]), scale, start, length)
        return list(zip(at.tolist(), [words for _, words in scale.ticks], strict=True))
    largest = max(map(abs, scale.ends))
    places = _places(scale, start, length, _fitting_ticks(length))
    return [(x, tick_text(value, largest)) for x, value in places]


def _fitting_ticks(width: float) -> int:
    return _TICKS if width > _SHORT else _FEW_TICKS


def _places(
    scale: Scale, start: float, length: float, most: int = _TICKS
) -> list[tuple[float, float]]:
    """Where on an axis of `length` pixels its grid is, `most` lines or so, and of which values."""
    values = [place for place, _ in scale.ticks] or ticks(scale.ends, most)
    if scale.whole:
        values = [value for value in values if value == int(value)]
    return list(zip(_along(np.array(values), scale, start, length).tolist(), values, strict=True))


def _along(at: FloatArray, scale: Scale, start: float, length: float) -> FloatArray:
    low, high = scale.ends
    pixels: FloatArray = start + (at - low) / (high - low) * length
    return pixels
