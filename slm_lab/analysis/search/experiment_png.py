"""Draws the graph of a search as PNG: a row for each metric, a column for each variable."""

from typing import TYPE_CHECKING

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import tick_text
from slm_lab.analysis.figure.png import DPI, Box, Picture, ticks
from slm_lab.analysis.figure.shade import shade
from slm_lab.analysis.search.experiment_figure import AxisOf, ExperimentFigure, number
from slm_lab.analysis.search.variable_axes import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE, _TOP, _HEADING = 34, 152, 64
_LEFT, _RIGHT, _GAP = 136, 18, 16  # of the panels: numbers and names, the margin, between two
_PANELS_WIDTH, _NARROWEST, _WIDEST = 1410, 216, 746  # of all together, and of one
_HEIGHTS = {1: 420, 2: 320, 3: 250}  # of as many rows
_LOW = 186  # of more
_TEXT, _NAME, _SMALLEST = 15, 18, 11
_DOTS = ((40, 12.0), (120, 10.0), (250, 8.0))  # diameters of up to so many
_TINY = 6.0
_OPACITY = 0.9
_KEY, _KEY_STEPS = 300, 60  # pixels of the scale of colours, if there is room
_TICKS, _FEW_TICKS = 5, 3  # on an axis, and on one whose numbers have no room for more
_HALF_LETTER = 0.31  # half of the width of a letter, of its size
_SHORT = 260  # pixels of a variable's axis


def render_experiment_png(figure: ExperimentFigure) -> bytes:
    """The figure as the bytes of a PNG file, as wide and high as variables and metrics need."""
    rows, columns = max(len(figure.metrics), 1), max(len(figure.variables), 1)
    wide = min(max(_PANELS_WIDTH / columns, _NARROWEST), _WIDEST)
    high = _HEIGHTS.get(rows, _LOW)
    measure = Picture(8, 8)
    feet = [_foot(measure, axis.scale, wide - _GAP) for axis in figure.variables]
    names = max([height for _, _, height in feet], default=0.0)
    height = _TOP + _HEADING + rows * high + names + 2.6 * _NAME
    picture = Picture(_LEFT + columns * wide + _RIGHT, height)
    _head(picture, figure)
    if not figure.metrics:
        x, y = _LEFT + (picture.width - _LEFT) / 2, (picture.height - _TOP) / 2
        picture.text(x, y, "no results yet", 22, look.MUTED, align="center")
        return picture.png()
    top = picture.height - _TOP - _HEADING
    for j, (variable, foot) in enumerate(zip(figure.variables, feet, strict=True)):
        column = Box(_LEFT + j * wide, top - rows * high + _GAP, wide - _GAP, high - _GAP)
        for i, metric in enumerate(figure.metrics):
            box = column._replace(bottom=top - (i + 1) * high + _GAP)
            axes = picture.axes(box, _TEXT)
            _draw_panel(axes, figure, variable, metric)
            _set_values(axes, variable.scale, box.width, foot if i == rows - 1 else None)
            axes.tick_params(labelleft=not j)
            if not j:
                _name_row(picture, box, metric)
        _name_column(picture, column, variable, top, column.bottom - names - 1.5 * _NAME)
    return picture.png()


def _head(picture: Picture, figure: ExperimentFigure) -> None:
    """Title and counts; below them what the dots mean."""
    picture.heading(figure.title, figure.subtitle, _SIDE)
    if not figure.trials:
        return
    x, y = float(_SIDE), picture.height - 130.0
    for filled, words in ((True, "whole budget spent"), (False, "stopped early, or not ended")):
        if filled in figure.filled:
            _dots(picture.axes_for_pixels(), [x + 8], [y + 6], [look.MUTED], [filled], 13.0)
            x += 22 + picture.text(x + 22, y, words, 17) + 28
    _draw_key(picture, figure, x, y)


def _draw_key(picture: Picture, figure: ExperimentFigure, x: float, y: float) -> None:
    """The colours from the least to the most."""
    shading = figure.shading
    low, high = (number(end) for end in shading.ends)
    x += picture.text(x, y, f"{shading.name}  {low}", 17) + 10
    length = min(_KEY, picture.width - _SIDE - 10 - picture.text_width(high, 17) - x)
    edges = x + np.linspace(0, length, _KEY_STEPS + 1)
    colours = [shade(i / (_KEY_STEPS - 1)) for i in range(_KEY_STEPS)]
    axes = picture.axes_for_pixels()
    axes.bar(edges[:-1], 16, np.diff(edges), y - 2, align="edge", color=colours, linewidth=0)
    picture.text(x + length + 10, y, high, 17)


def _draw_panel(axes: "Axes", figure: ExperimentFigure, variable: AxisOf, metric: AxisOf) -> None:
    """Dots of one metric over one variable."""
    axes.set(xlim=variable.scale.ends, ylim=metric.scale.ends)
    at, largest = _places(metric.scale, _TICKS), max(map(abs, metric.scale.ends))
    axes.set_yticks(at, [tick_text(value, largest) for value in at])
    count = len(figure.filled)
    diameter = next((size for most, size in _DOTS if count <= most), _TINY)
    xs, ys = variable.scale.beside.tolist(), metric.scale.at.tolist()
    _dots(axes, xs, ys, figure.shading.colours, figure.filled, diameter)


def _dots(
    axes: "Axes",
    xs: list[float],
    ys: list[float],
    colours: list[str],
    filled: list[bool],
    diameter: float,
) -> None:
    inner = 0.82 * diameter
    for full in (True, False):
        chosen = [i for i, each in enumerate(filled) if each is full]
        hues = [colours[i] for i in chosen]
        axes.scatter(
            [xs[i] for i in chosen],
            [ys[i] for i in chosen],
            s=(diameter if full else inner) ** 2,
            facecolors=hues if full else "none",
            edgecolors="none" if full else hues,
            linewidths=0.0 if full else 0.18 * diameter,
            alpha=_OPACITY if full else 1.0,
            zorder=2.5,
            clip_on=False,
        )


def _name_row(picture: Picture, box: Box, metric: AxisOf) -> None:
    middle, room = box.bottom + box.height / 2, box.height + _GAP
    picture.text(_SIDE, middle, metric.name, _NAME, upwards=True, room=room)


def _name_column(picture: Picture, box: Box, variable: AxisOf, top: float, below: float) -> None:
    """The variable and its importance above the column, and its name below."""
    name, room = variable.name, box.width
    picture.text(box.left, top + 37, name, _NAME + 1, bold=True, room=room)
    picture.text(box.left, top + 15, variable.note, _TEXT + 1, look.MUTED, room=room)
    middle = box.left + box.width / 2
    picture.text(middle, below, name, _NAME, look.MUTED, align="center", room=room)


def _set_values(
    axes: "Axes", scale: Scale, width: float, foot: tuple[float, bool, float] | None
) -> None:
    """Grid lines, and below the lowest panel what they stand for."""
    labels = _labels(scale, width)
    axes.set_xticks([at for at, _ in labels], [words for _, words in labels])
    axes.tick_params(labelbottom=foot is not None)
    if foot is not None:
        size, upwards, _ = foot
        axes.tick_params(axis="x", labelsize=size, labelrotation=90 if upwards else 0)
        if not upwards:
            _keep_inside(axes, scale, width, size, labels)


def _keep_inside(
    axes: "Axes", scale: Scale, width: float, size: float, labels: list[tuple[float, str]]
) -> None:
    """Moves words at the ends of an axis, so that they stay beside those of the next column."""
    from matplotlib.transforms import ScaledTranslation

    low, high = scale.ends
    for label, (at, words) in zip(axes.get_xticklabels(), labels, strict=True):
        half = _HALF_LETTER * size * len(words) - 0.4 * _GAP
        before = (at - low) / (high - low) * width
        pixels = max(half - before, 0.0) - max(half - (width - before), 0.0)
        move = ScaledTranslation(pixels / DPI, 0, axes.figure.dpi_scale_trans)
        label.set_transform(label.get_transform() + move)


def _foot(picture: Picture, scale: Scale, width: float) -> tuple[float, bool, float]:
    """How the words below an axis of `width` pixels are written: their size, whether upwards
    because they have no room across, and the pixels they take."""
    labels = [words for _, words in _labels(scale, width)]
    across = float(_TEXT) + 8
    if not scale.categories:
        return _TEXT, False, across
    room = width / len(labels) - 8
    fitting = min(picture.fitting(words, _TEXT, room) for words in labels)
    if fitting >= _SMALLEST:
        return fitting, False, across
    size = min(float(_TEXT), max(room + 8, 9.0))
    return size, True, max(picture.text_width(words, size) for words in labels) + 14


def _labels(scale: Scale, width: float) -> list[tuple[float, str]]:
    """Places on an axis of `width` pixels, and their words."""
    if scale.ticks:
        return list(scale.ticks)
    largest = max(map(abs, scale.ends))
    most = _TICKS if width > _SHORT else _FEW_TICKS
    return [(value, tick_text(value, largest)) for value in _places(scale, most)]


def _places(scale: Scale, most: int) -> list[float]:
    values = [place for place, _ in scale.ticks] or ticks(scale.ends, most)
    return [value for value in values if not scale.whole or value == int(value)]
