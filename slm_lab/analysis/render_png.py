"""Draws figures and overviews as PNG: no browser, no network, no global state."""

from slm_lab.analysis import figure as look
from slm_lab.analysis.canvas import Canvas
from slm_lab.analysis.figure import Figure, Overview, Panel, x_limits
from slm_lab.analysis.panel_grid import cells, grid_shape
from slm_lab.analysis.panel_png import Box, PanelStyle, draw_legend, draw_panel, legend_width

_SIZE = (1280, 716)
_BOX = Box(left=141, bottom=143, width=1100, height=455)
_STYLE = PanelStyle(text=23, x_ticks=8, y_ticks=6)

_WIDTH = 1600
_TOP, _FOOT, _SIDE = 128, 74, 34  # title, numbers and label of the x axis, margins at the sides
_CELL_HEIGHT = {1: 620, 2: 330}  # of a grid with so many rows
_LOW_CELL = 250  # of a grid with more
_NUMBERS = 72  # left of a panel
_BETWEEN = 26  # right of a panel
_HEADING = 50  # above a panel, and the gap to the one that is higher
_SMALL = PanelStyle(text=17, x_ticks=5, y_ticks=5)
_WIDE = PanelStyle(text=20, x_ticks=8, y_ticks=6)


def render_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, 1280 pixels wide."""
    width, height = _SIZE
    canvas = Canvas(width, height)
    draw_panel(canvas, _BOX, figure.curves, x_limits(figure.curves), figure.note, _STYLE)
    title, subtitle = figure.title, figure.subtitle
    room = width - 50.0
    letters = canvas.fitting(title, 30, room, bold=True)
    canvas.text(26, height - 54, title, letters, look.INK, bold=True)
    canvas.text(26, height - 93, subtitle, canvas.fitting(subtitle, 23, room), look.MUTED)
    middle = _BOX.left + _BOX.width / 2
    canvas.text(middle, 76, figure.x_label, 25, look.INK, align="centre")
    # At a fixed place, so that long numbers beside the axis never push it out of the picture.
    centre = _BOX.bottom + _BOX.height / 2
    canvas.text(43, centre, figure.y_label, 25, look.INK, align="centre", upwards=True)
    draw_legend(canvas, figure.curves, _BOX.left, 22, 23)
    return canvas.png()


def render_overview_png(overview: Overview) -> bytes:
    """The overview as the bytes of a PNG file, 1600 pixels wide and as high as its rows need."""
    rows, columns = grid_shape(len(overview.panels))
    cell_width = (_WIDTH - 2 * _SIDE) / columns
    cell_height = _CELL_HEIGHT.get(rows, _LOW_CELL)
    canvas = Canvas(_WIDTH, _TOP + rows * cell_height + _FOOT)
    top, room = canvas.height, _WIDTH - 2.0 * _SIDE
    title, subtitle = overview.title, overview.subtitle
    letters = canvas.fitting(title, 32, room, bold=True)
    canvas.text(_SIDE, top - 58, title, letters, look.INK, bold=True)
    canvas.text(_SIDE, top - 96, subtitle, canvas.fitting(subtitle, 22, room), look.MUTED)
    ends = x_limits([curve for panel in overview.panels for curve in panel.curves])
    style = _SMALL if columns > 2 else _WIDE
    for cell, panel in zip(cells(len(overview.panels)), overview.panels, strict=True):
        box = Box(
            left=_SIDE + cell.column * cell_width + _NUMBERS,
            bottom=top - _TOP - (cell.row + 1) * cell_height,
            width=cell_width - _NUMBERS - _BETWEEN,
            height=float(cell_height - _HEADING),
        )
        draw_panel(canvas, box, panel.curves, ends, panel.note, style, x_numbers=cell.lowest)
        _head(canvas, box, panel, style.text)
        if cell.lowest:
            x, y = box.left + box.width / 2, box.bottom - 3 * style.text
            canvas.text(x, y, overview.x_label, style.text, look.MUTED, align="centre")
    return canvas.png()


def _head(canvas: Canvas, box: Box, panel: Panel, size: float) -> None:
    """The panel's title, and to the right of it what its curves are."""
    y = box.bottom + box.height + 0.65 * size
    heading = canvas.fitting(panel.title, 1.12 * size, box.width, bold=True)
    canvas.text(box.left, y, panel.title, heading, look.INK, bold=True)
    if not any(curve.label for curve in panel.curves):
        return
    x = box.left + canvas.text_width(panel.title, heading, bold=True) + 0.9 * size
    room, wanted = box.left + box.width - x, legend_width(canvas, panel.curves, 0.9 * size)
    draw_legend(canvas, panel.curves, x, y, 0.9 * size * min(1.0, max(room / wanted, 0.5)))
