"""Where the parts of a figure go: one panel over its legend, or panels in a grid."""

from collections.abc import Sequence

from slm_lab.analysis.figure import figure as fig

MAX_COLUMNS = 4
"""The most panels side by side that are still readable on a slide."""
SIDE = 34
"""Margins of figures with several parts."""

_WIDTH, _PLOT = 1280, fig.Box(141, 118, 1100, 455)  # a figure of one panel
_GRID_WIDTH, _TOP = 1600, 128
_CELL_HEIGHT = {1: 620, 2: 330}  # of a grid with so many rows
_LOW_CELL = 250  # of a grid with more
_NUMBERS, _BETWEEN, _HEADING = 72, 26, 50  # left of, right of and above a panel


def single(
    title: str, subtitle: str, x: str, y: str, curves: Sequence[fig.Curve], note: str = ""
) -> fig.Figure:
    """Curves in one pair of axes with labels `x` and `y`, over a legend."""
    scales = fig.Scale(x, fig.x_limits(curves), 8), fig.Scale(y, fig.y_limits(curves))
    panel = fig.Panel(_PLOT, *scales, curves=tuple(curves), note=note)
    return fig.Figure(title, subtitle, (panel,), _WIDTH, 23, legend=True)


def single_bars(title: str, subtitle: str, panel: fig.Panel) -> fig.Figure:
    """Bars alone; the panel's box is replaced."""
    box = _PLOT.inset(top=43, bottom=-43)
    return fig.Figure(title, subtitle, (panel._replace(box=box, title=""),), _WIDTH, 22)


def overview(
    title: str,
    subtitle: str,
    x: str,
    panels: Sequence[tuple[str, Sequence[fig.Curve]]],
    note: str = "no values yet",
) -> fig.Figure:
    """Titled panels in a grid that share the x axis, labelled `x`, each with its own y axis."""
    rows, columns = grid_shape(len(panels))
    height = rows * _CELL_HEIGHT.get(rows, _LOW_CELL)
    cells = fig.Box(SIDE, _TOP, _GRID_WIDTH - 2 * SIDE, height).cells(rows, columns)
    ends = fig.x_limits([curve for _, curves in panels for curve in curves])
    few = columns <= 2
    parts = []
    for i, (cell, (name, curves)) in enumerate(zip(cells, panels, strict=False)):
        lowest = i + columns >= len(panels)
        across = fig.Scale(x if lowest else "", ends, 8 if few else 5, numbers=lowest, link="x")
        up = fig.Scale(ends=fig.y_limits(curves), most=6 if few else 5)
        keys = tuple((curve.ink, f"━ {curve.label}") for curve in fig.in_legend_order(curves))
        box = cell.inset(left=_NUMBERS, top=_HEADING, right=_BETWEEN)
        parts.append(fig.Panel(box, across, up, name, "", keys, tuple(curves), note=note))
    size = 20 if few else 17
    return fig.Figure(title, subtitle, tuple(parts), _GRID_WIDTH, size, linked=True)


def grid_shape(panels: int) -> tuple[int, int]:
    """Rows and columns for `panels` pictures: about as many of both, at most 4 columns."""
    columns = next((c for c in range(1, MAX_COLUMNS) if panels <= c * c), MAX_COLUMNS)
    return -(-panels // columns), columns
