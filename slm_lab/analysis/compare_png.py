"""Draws the bars and the dashboard of a comparison as PNG."""

from collections.abc import Sequence

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.canvas import Canvas
from slm_lab.analysis.compare_figure import BAR_WIDTH, HOLLOW, Bar, BarChart, Dashboard, Plot
from slm_lab.analysis.compare_table import TextTable
from slm_lab.analysis.figure import tick_text, tinted
from slm_lab.analysis.panel_png import Box, PanelStyle, draw_panel, ticks
from slm_lab.core.types import FloatArray

_SIZE = (1280, 716)
_CHART = Box(left=120, bottom=100, width=1120, height=455)

_WIDTH, _SIDE, _TOP = 1720, 34, 118
_CELL = 372  # the height of a plot with its words
_NUMBERS, _BETWEEN, _HEADING, _FOOT = 66, 30, 44, 66  # left, right, above and below a plot
_PLOTS_WIDTH = 1080
_STYLE = PanelStyle(text=17, x_ticks=5, y_ticks=5)
_TEXT, _ROW = 18, 29  # letters and lines of the table
_NOTE, _NOTE_ROW = 16, 24
_LEGEND = 54  # above the bars: two lines

_PALE = 0.25  # a share of white from which on dark letters are better to read
_DASH = (7.0, 4.0)


def render_chart_png(chart: BarChart) -> bytes:
    """The bars as the bytes of a PNG file, 1280 pixels wide."""
    canvas = Canvas(*_SIZE)
    _heading(canvas, chart.title, chart.subtitle, 26, 30)
    _draw_chart(canvas, _CHART, chart, 22)
    return canvas.png()


def render_dashboard_png(board: Dashboard) -> bytes:
    """The dashboard as the bytes of a PNG file, 1720 pixels wide and as high as its table needs."""
    rows = -(-len(board.plots) // 2)
    table = _ROW * (len(board.table.rows) + 1) + 26
    height = _TOP + rows * _CELL + table + _NOTE_ROW * len(board.notes) + 40
    canvas = Canvas(_WIDTH, height)
    _heading(canvas, board.title, board.subtitle, _SIDE, 32)
    for i, plot in enumerate(board.plots):
        _draw_plot(canvas, _cell(height, i), plot)
    first, left = _cell(height, 0), _SIDE + _PLOTS_WIDTH + _NUMBERS
    foot = _cell(height, 2 * rows - 1).bottom
    box = Box(left, foot, _WIDTH - _SIDE - left, first.bottom + first.height - foot)
    _head(canvas, box, f"speed-up: {board.bars.y_label}")
    under_legend = box._replace(height=box.height - _LEGEND)
    _draw_chart(canvas, under_legend, board.bars, _STYLE.text, with_y_label=False)
    top = height - _TOP - rows * _CELL - 14
    _draw_table(canvas, board.table, board.swatches, top)
    for i, note in enumerate(board.notes):
        y = top - table - _NOTE_ROW * (i + 1) + 8
        letters = canvas.fitting(note, _NOTE, _WIDTH - 2 * _SIDE)
        canvas.text(_SIDE, y, note, letters, look.MUTED)
    return canvas.png()


def _cell(height: int, index: int) -> Box:
    """Where the axes of a plot go: two in a row."""
    row, column = divmod(index, 2)
    width = _PLOTS_WIDTH / 2
    return Box(
        _SIDE + column * width + _NUMBERS,
        height - _TOP - (row + 1) * _CELL + _FOOT,
        width - _NUMBERS - _BETWEEN,
        float(_CELL - _HEADING - _FOOT),
    )


def _heading(canvas: Canvas, title: str, subtitle: str, left: float, size: float) -> None:
    room = canvas.width - 2 * left
    letters = canvas.fitting(title, size, room, bold=True)
    canvas.text(left, canvas.height - 54, title, letters, look.INK, bold=True)
    letters = canvas.fitting(subtitle, 0.7 * size, room)
    canvas.text(left, canvas.height - 92, subtitle, letters, look.MUTED)


def _draw_plot(canvas: Canvas, box: Box, plot: Plot) -> None:
    panel, size = plot.panel, _STYLE.text
    draw_panel(canvas, box, panel.curves, plot.ends, panel.note, _STYLE)
    _head(canvas, box, panel.title)
    middle = box.left + box.width / 2
    canvas.text(middle, box.bottom - 3 * size, plot.x_label, size, look.MUTED, align="centre")


def _head(canvas: Canvas, box: Box, title: str) -> None:
    letters = canvas.fitting(title, 1.12 * _STYLE.text, box.width, bold=True)
    y = box.bottom + box.height + 0.65 * _STYLE.text
    canvas.text(box.left, y, title, letters, look.INK, bold=True)


def _draw_chart(
    canvas: Canvas, box: Box, chart: BarChart, size: float, *, with_y_label: bool = True
) -> None:
    """Grid, bars and marks in `box`, words of `size` below and to the left of it."""
    low, high = chart.y_ends
    unit = box.height / (high - low)
    right = box.left + box.width
    for tick in ticks((low, high), 6):
        y = box.bottom + tick * unit
        canvas.line(_level(box.left, right, y), look.GRID, 1.2)
        number = tick_text(tick, high)
        canvas.text(box.left - 0.5 * size, y - 0.365 * size, number, size, look.INK, align="right")
    canvas.line(_level(box.left, right, box.bottom), look.MUTED, 1.0)
    first, last = chart.x_ends
    step = box.width / (last - first)
    for place, bar in zip(chart.places, chart.bars, strict=True):
        left = box.left + (place - first - BAR_WIDTH / 2) * step
        _draw_bar(canvas, bar, left, step * BAR_WIDTH, box.bottom, unit, size)
    base = box.bottom + chart.base * unit
    canvas.line(_level(box.left, right, base), look.MUTED, 0.09 * size, dash=_DASH)
    for group, place in chart.group_places.items():
        room = step * (sum(bar.group == group for bar in chart.bars) + 0.5)
        letters = canvas.fitting(group, 1.05 * size, room, bold=True)
        x, y = box.left + (place - first) * step, box.bottom - 2.75 * size
        canvas.text(x, y, group, letters, look.INK, align="centre", bold=True)
    y = box.bottom - 1.35 * size
    canvas.text(box.left - 0.5 * size, y, chart.x_label, 0.8 * size, look.MUTED, align="right")
    if with_y_label:
        x, y = box.left - 3.2 * size, box.bottom + box.height / 2
        canvas.text(x, y, chart.y_label, size, look.INK, align="centre", upwards=True)
    _draw_chart_legend(canvas, chart, box, 0.88 * size)


def _draw_bar(
    canvas: Canvas, bar: Bar, left: float, width: float, bottom: float, unit: float, size: float
) -> None:
    colour, middle = tinted(bar.colour, bar.tint), left + width / 2
    canvas.text(middle, bottom - 1.35 * size, bar.label, size, look.INK, align="centre")
    text, ink, at = bar.note, look.MUTED, bottom + 0.5 * size
    if bar.height is not None:
        outline = _rectangle(left, bottom, width, bar.height * unit)
        canvas.area(outline, tinted(bar.colour, HOLLOW) if bar.hollow else colour)
        canvas.line(outline, colour, 0.1 * size)
        text = f"{bar.height:.2f}"
        ink = look.INK if bar.hollow or bar.tint > _PALE else "#FFFFFF"
    if bar.high > bar.low:
        whisker = np.array([[middle, bottom + bar.low * unit], [middle, bottom + bar.high * unit]])
        canvas.line(whisker, look.INK, 0.1 * size)
    if canvas.text_width(text, size) <= width:
        canvas.text(middle, at, text, size, ink, align="centre")
    else:
        canvas.text(middle + 0.365 * size, at, text, size, ink, upwards=True)
    ideal = _level(left - 0.1 * width, left + 1.1 * width, bottom + bar.ideal * unit)
    canvas.line(ideal, look.INK, 0.14 * size)


def _draw_chart_legend(canvas: Canvas, chart: BarChart, box: Box, size: float) -> None:
    """Above the box, in two lines where one has no room for all."""
    widths = [3.3 * size + canvas.text_width(text, size) for _, text in chart.legend]
    lines = 1 if sum(widths) <= box.width else 2
    x, y = box.left, box.bottom + box.height + (1.45 * lines - 0.6) * size
    for (mark, text), width in zip(chart.legend, widths, strict=True):
        if x > box.left and x + width - 1.4 * size > box.left + box.width:
            x, y = box.left, y - 1.45 * size
        middle, centre = y + 0.365 * size, x + 0.7 * size
        across = _level(x, x + 1.4 * size, middle)
        match mark:
            case "ideal":
                canvas.line(across, look.INK, 0.15 * size)
            case "base":
                canvas.line(across, look.MUTED, 0.1 * size, dash=(4.0, 2.5))
            case "spread":
                upright = np.array([[centre, y - 0.2 * size], [centre, y + 0.9 * size]])
                canvas.line(upright, look.INK, 0.1 * size)
            case "hollow":
                square = _rectangle(x + 0.25 * size, y - 0.085 * size, 0.9 * size, 0.9 * size)
                canvas.line(square, look.MUTED, 0.1 * size)
        canvas.text(x + 1.9 * size, y, text, size, look.INK)
        x += width


def _draw_table(
    canvas: Canvas, table: TextTable, swatches: Sequence[tuple[int, float]], top: float
) -> None:
    """All rows from `top` downwards; a swatch of its curves stands before each."""
    left = _SIDE + 2.4 * _TEXT
    letters, ends = _columns(canvas, table, canvas.width - _SIDE - left)
    for i, cells in enumerate([table.header, *table.rows]):
        y = top - _ROW * i - 22
        middle = y + 0.365 * _TEXT
        if i:
            rule = _level(_SIDE, canvas.width - _SIDE, middle + _ROW / 2)
            canvas.line(rule, look.GRID, 1.2)
            canvas.line(_level(_SIDE, _SIDE + 1.7 * _TEXT, middle), tinted(*swatches[i - 1]), 4.5)
        ink = look.INK if i else look.MUTED
        canvas.text(left, y, cells[0], letters, ink, bold=not i)
        for text, end in zip(cells[1:], ends, strict=True):
            canvas.text(left + end, y, text, letters, ink, align="right", bold=not i)


def _columns(canvas: Canvas, table: TextTable, room: float) -> tuple[float, list[float]]:
    """The size of the letters with which all columns fit into `room` pixels, and where each but the
    first ends."""
    widths = [
        max(canvas.text_width(text, _TEXT, bold=not i) for i, text in enumerate(column))
        for column in zip(table.header, *table.rows, strict=True)
    ]
    gaps = len(widths) - 1
    shrunk = min(1.0, room / (sum(widths) + 1.5 * _TEXT * gaps))
    gap = (room - shrunk * sum(widths)) / gaps
    ends = np.cumsum([shrunk * width + gap for width in widths]) - gap
    return shrunk * _TEXT, ends[1:].tolist()


def _level(left: float, right: float, y: float) -> FloatArray:
    return np.array([[left, y], [right, y]])


def _rectangle(left: float, bottom: float, width: float, height: float) -> FloatArray:
    right, top = left + width, bottom + height
    return np.array([[left, bottom], [right, bottom], [right, top], [left, top], [left, bottom]])
