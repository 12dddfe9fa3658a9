"""Draws an overlay as PNG: the panel, and under it a legend in as many rows as it needs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.canvas import Canvas
from slm_lab.analysis.figure import Curve, colour_of, runs, x_limits, y_limits
from slm_lab.analysis.overlay import Band, Overlay
from slm_lab.analysis.panel_png import Box, PanelStyle, draw_legend, draw_panel, legend_width
from slm_lab.core.types import FloatArray

_WIDTH = 1280
_LEFT, _RIGHT, _SIDE = 141, 39, 26
_TOP, _HEIGHT, _FOOT = 118, 455, 104  # title, panel, numbers and label of the x axis
_ROW, _END = 33, 14  # of the legend, and what is below it
_STYLE = PanelStyle(text=23, x_ticks=8, y_ticks=6)
_LETTERS, _SMALLER, _SMALLEST = 22.0, 17.0, 13.0  # pixels, of the legend
_GAP = 1.6  # between two columns, in letters
_MANY = 5  # curves, from which on a legend is better in two columns


class _Legend(NamedTuple):
    """The labelled curves in columns, read from left to right."""

    letters: float
    columns: int
    column_width: float
    rows: int


def render_overlay_png(overlay: Overlay) -> bytes:
    """The overlay as the bytes of a PNG file, 1280 pixels wide and as high as its legend needs."""
    figure = overlay.figure
    labelled = [curve for curve in figure.curves if curve.label]
    legend = _legend(labelled)
    below = _FOOT + legend.rows * _ROW + _END
    canvas = Canvas(_WIDTH, _TOP + _HEIGHT + below)
    box = Box(_LEFT, below, _WIDTH - _LEFT - _RIGHT, _HEIGHT)
    _draw_bands(canvas, box, overlay)
    ends = x_limits(figure.curves)
    draw_panel(canvas, box, overlay.in_view, ends, figure.note, _STYLE)
    room = _WIDTH - 2.0 * _SIDE
    letters = canvas.fitting(figure.title, 30, room, bold=True)
    canvas.text(_SIDE, canvas.height - 54, figure.title, letters, look.INK, bold=True)
    smaller = canvas.fitting(figure.subtitle, 23, room)
    canvas.text(_SIDE, canvas.height - 93, figure.subtitle, smaller, look.MUTED)
    middle = box.left + box.width / 2
    canvas.text(middle, below - 67, figure.x_label, 25, look.INK, align="centre")
    centre = box.bottom + box.height / 2
    canvas.text(43, centre, figure.y_label, 25, look.INK, align="centre", upwards=True)
    for place, curve in enumerate(labelled):
        row, column = divmod(place, legend.columns)
        x = _SIDE + column * legend.column_width
        draw_legend(canvas, [curve], x, below - _FOOT - (row + 0.5) * _ROW, legend.letters)
    return canvas.png()


def _legend(labelled: Sequence[Curve]) -> _Legend:
    """As many columns as the longest label leaves room for. The letters are smaller where it is
    too long for one, and a little smaller where many curves get a second column by that."""
    canvas, room = Canvas(1, 1), _WIDTH - 2.0 * _SIDE
    letters, wanted = _LETTERS, 2 if len(labelled) >= _MANY else 1
    if _columns(canvas, labelled, _SMALLER, room) < wanted:
        wanted = 1
    while letters > _SMALLEST and _columns(canvas, labelled, letters, room) < wanted:
        letters -= 1
    columns = min(max(_columns(canvas, labelled, letters, room), 1), len(labelled))
    width = _column_width(canvas, labelled, letters)
    return _Legend(letters, columns, width, -(-len(labelled) // columns))


def _columns(canvas: Canvas, labelled: Sequence[Curve], letters: float, room: float) -> int:
    gap = _GAP * letters  # the last column needs none
    return int((room + gap) / _column_width(canvas, labelled, letters))


def _column_width(canvas: Canvas, labelled: Sequence[Curve], letters: float) -> float:
    widest = max(legend_width(canvas, [curve], letters) for curve in labelled)
    return widest + _GAP * letters


def _draw_bands(canvas: Canvas, box: Box, overlay: Overlay) -> None:
    """Under everything else, so that no band covers a line."""
    x_ends, y_ends = x_limits(overlay.figure.curves), y_limits(overlay.in_view)
    start, size = np.array([box.left, box.bottom]), np.array([box.width, box.height])
    corner = np.array([x_ends[0], y_ends[0]])
    scale = size / (np.array([x_ends[1], y_ends[1]]) - corner)
    for curve, band in zip(overlay.figure.curves, overlay.bands, strict=True):
        if band is None:
            continue
        for outline in _outlines(curve, band):
            pixels = start + (outline - corner) * scale
            canvas.area(pixels, colour_of(curve), look.BAND_OPACITY)


def _outlines(curve: Curve, band: Band) -> list[FloatArray]:
    """The corners (P, 2) of each unbroken stretch of a band."""
    corners = []
    for part in runs(np.isfinite(band.low)):
        x = np.concatenate([curve.x[part], curve.x[part][::-1]])
        y = np.concatenate([band.low[part], band.high[part][::-1]])
        corners.append(np.column_stack([x, y]))
    return corners
