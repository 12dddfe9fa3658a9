"""Draws the bars and the dashboard of a comparison as PNG."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from slm_lab.analysis.compare.compare_figure import (
    BAR_WIDTH,
    HOLLOW,
    Bar,
    BarChart,
    Dashboard,
    Plot,
)
from slm_lab.analysis.compare.compare_table import TextTable
from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import tinted
from slm_lab.analysis.figure.png import SMALL, Box, Picture, draw_curves, draw_head, set_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (1280, 716)
_CHART = Box(left=120, bottom=100, width=1120, height=455)

_WIDTH, _SIDE, _TOP = 1720, 34, 118
_CELL = 372  # the height of a plot with its words
_NUMBERS, _BETWEEN, _HEADING, _FOOT = 66, 30, 44, 66  # left, right, above and below a plot
_PLOTS_WIDTH = 1080
_TEXT, _ROW = 18, 29  # letters and lines of the table
_NOTE, _NOTE_ROW = 16, 24
_LEGEND = 54  # above the bars: two lines

_PALE = 0.25  # a share of white from which on dark letters are better to read
_DASH = (0.0, (7.0, 4.0))


def render_chart_png(chart: BarChart) -> bytes:
    """The bars as the bytes of a PNG file, 1280 pixels wide."""
    picture = Picture(*_SIZE)
    picture.heading(chart.title, chart.subtitle, 26)
    _draw_chart(picture, _CHART, chart, 22)
    return picture.png()


def render_dashboard_png(board: Dashboard) -> bytes:
    """The dashboard as the bytes of a PNG file, 1720 pixels wide and as high as its table needs."""
    rows = -(-len(board.plots) // 2)
    table = _ROW * (len(board.table.rows) + 1) + 26
    height = _TOP + rows * _CELL + table + _NOTE_ROW * len(board.notes) + 40
    picture = Picture(_WIDTH, height)
    picture.heading(board.title, board.subtitle, _SIDE, 32)
    for i, plot in enumerate(board.plots):
        _draw_plot(picture, _cell(height, i), plot)
    first, left = _cell(height, 0), _SIDE + _PLOTS_WIDTH + _NUMBERS
    foot = _cell(height, 2 * rows - 1).bottom
    box = Box(left, foot, _WIDTH - _SIDE - left, first.bottom + first.height - foot)
    draw_head(picture, box, f"speed-up: {board.bars.y_label}", SMALL.text)
    under_legend = box._replace(height=box.height - _LEGEND)
    _draw_chart(picture, under_legend, board.bars, SMALL.text, with_y_label=False)
    top = height - _TOP - rows * _CELL - 14
    _draw_table(picture, board.table, board.swatches, top)
    for i, note in enumerate(board.notes):
        y = top - table - _NOTE_ROW * (i + 1) + 8
        picture.text(_SIDE, y, note, _NOTE, look.MUTED, room=_WIDTH - 2 * _SIDE)
    return picture.png()


def _cell(height: int, index: int) -> Box:
    """Where the axes of a plot go: two in a row."""
    row, column = divmod(index, 2)
    width = _PLOTS_WIDTH / 2
    return Box(
        _SIDE + column * width + _NUMBERS,
        height - _TOP - (row + 1) * _CELL + _FOOT,
        width - _NUMBERS - _BETWEEN,
        _CELL - _HEADING - _FOOT,
    )


def _draw_plot(picture: Picture, box: Box, plot: Plot) -> None:
    axes = picture.axes(box, SMALL.text)
    draw_curves(axes, plot.panel.curves, plot.ends, plot.panel.note, SMALL)
    draw_head(picture, box, plot.panel.title, SMALL.text)
    x, y = box.left + box.width / 2, box.bottom - 3 * SMALL.text
    picture.text(x, y, plot.x_label, SMALL.text, look.MUTED, align="center")


def _draw_chart(
    picture: Picture, box: Box, chart: BarChart, size: float, *, with_y_label: bool = True
) -> None:
    """Bars and marks in `box`, words of `size` below and to the left of it."""
    axes = picture.axes(box, size)
    axes.grid(visible=False, axis="x")
    axes.set(xlim=chart.x_ends)
    set_axis(axes.yaxis, chart.y_ends, 6)
    axes.set_xticks(chart.places, [bar.label for bar in chart.bars])
    first, last = chart.x_ends
    step = box.width / (last - first)
    for place, bar in zip(chart.places, chart.bars, strict=True):
        _draw_bar(axes, bar, place, picture, step * BAR_WIDTH, size)
    axes.axhline(chart.base, color=look.MUTED, linewidth=0.09 * size, linestyle=_DASH)
    for group, place in chart.group_places.items():
        room = step * (sum(bar.group == group for bar in chart.bars) + 0.5)
        x, y = box.left + (place - first) * step, box.bottom - 2.75 * size
        picture.text(x, y, group, 1.05 * size, align="center", bold=True, room=room)
    x, y = box.left - 0.5 * size, box.bottom - 1.35 * size
    picture.text(x, y, chart.x_label, 0.8 * size, look.MUTED, align="right")
    if with_y_label:
        x, y = box.left - 3.5 * size, box.bottom + box.height / 2
        picture.text(x, y, chart.y_label, size, upwards=True)
    _draw_chart_legend(picture, chart, box, 0.88 * size)


def _draw_bar(
    axes: "Axes", bar: Bar, place: float, picture: Picture, width: float, size: float
) -> None:
    colour, text, ink = tinted(bar.colour, bar.tint), bar.note, look.MUTED
    if bar.height is not None:
        face = tinted(bar.colour, HOLLOW) if bar.hollow else colour
        axes.bar(place, bar.height, BAR_WIDTH, color=face, edgecolor=colour, linewidth=0.1 * size)
        text = f"{bar.height:.2f}"
        ink = look.INK if bar.hollow or bar.tint > _PALE else "#FFFFFF"
    if bar.high > bar.low:
        axes.vlines(place, bar.low, bar.high, look.INK, linewidth=0.1 * size)
    upwards = picture.text_width(text, size) > width
    axes.annotate(text, (place, axes.get_ylim()[0]), (0, 0.5 * size), size=size, color=ink,
                  textcoords="offset points", ha="center", va="bottom",
                  rotation=90 if upwards else 0, parse_math=False)  # fmt: skip
    half = 0.6 * BAR_WIDTH
    axes.hlines(bar.ideal, place - half, place + half, look.INK, linewidth=0.14 * size)


def _draw_chart_legend(picture: Picture, chart: BarChart, box: Box, size: float) -> None:
    """Above the box, in two lines where one has no room for all."""
    from matplotlib.lines import Line2D

    marks = {
        "ideal": Line2D([], [], color=look.INK, linewidth=0.15 * size),
        "base": Line2D([], [], color=look.MUTED, linewidth=0.1 * size, linestyle=(0, (4.0, 2.5))),
        "spread": Line2D([], [], color=look.INK, linestyle="", marker="|", markersize=1.1 * size),
        "hollow": Line2D([], [], color=look.MUTED, linestyle="", marker="s", fillstyle="none",
                         markersize=0.9 * size),
    }  # fmt: skip
    width = sum(3.6 * size + picture.text_width(text, size) for _, text in chart.legend)
    columns = len(chart.legend) if width <= box.width else -(-len(chart.legend) // 2)
    lines = 1 if columns == len(chart.legend) else 2
    picture.drawing.legend(
        [marks[mark] for mark, _ in chart.legend],
        [text for _, text in chart.legend],
        loc="upper left",
        bbox_to_anchor=(
            box.left / picture.width,
            (box.bottom + box.height + (1.5 * lines + 0.3) * size) / picture.height,
        ),
        ncols=max(columns, 1),
        fontsize=size,
        labelcolor=look.INK,
        frameon=False,
        borderpad=0.0,
        borderaxespad=0.0,
        handlelength=1.4,
        columnspacing=1.4,
    )


def _draw_table(
    picture: Picture, table: TextTable, swatches: Sequence[tuple[int, float]], top: float
) -> None:
    """All rows from `top` downwards; a swatch of its curves stands before each."""
    from matplotlib.lines import Line2D

    left = _SIDE + 2.4 * _TEXT
    letters, ends = _columns(picture, table, picture.width - _SIDE - left)
    for i, cells in enumerate([table.header, *table.rows]):
        y = top - _ROW * i - 22
        middle = y + 0.365 * _TEXT
        if i:
            rule, swatch = middle + _ROW / 2, tinted(*swatches[i - 1])
            for end, at, colour, width in (
                (picture.width - _SIDE, rule, look.GRID, 1.2),
                (_SIDE + 1.7 * _TEXT, middle, swatch, 4.5),
            ):
                across = np.array([_SIDE, end]) / picture.width
                line = Line2D(across, [at / picture.height] * 2, color=colour, linewidth=width)
                picture.drawing.add_artist(line)
        ink = look.INK if i else look.MUTED
        picture.text(left, y, cells[0], letters, ink, bold=not i)
        for text, end in zip(cells[1:], ends, strict=True):
            picture.text(left + end, y, text, letters, ink, align="right", bold=not i)


def _columns(picture: Picture, table: TextTable, room: float) -> tuple[float, list[float]]:
    """The size of the letters with which all columns fit into `room` pixels, and where each but the
    first ends."""
    widths = [
        max(picture.text_width(text, _TEXT, bold=not i) for i, text in enumerate(column))
        for column in zip(table.header, *table.rows, strict=True)
    ]
    gaps = len(widths) - 1
    shrunk = min(1.0, room / (sum(widths) + 1.5 * _TEXT * gaps))
    gap = (room - shrunk * sum(widths)) / gaps
    ends = np.cumsum([shrunk * width + gap for width in widths]) - gap
    return shrunk * _TEXT, ends[1:].tolist()
