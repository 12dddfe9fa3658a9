"""Where the parts of a figure go: one panel over its legend, or panels in a grid."""

from collections.abc import Sequence

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure.look import tick_text
from slm_lab.core.types import FloatArray

MAX_COLUMNS = 4
"""The most panels side by side that are still readable on a slide."""
SIDE = 34
"""Margins of figures with several parts."""

_WIDTH, _LETTERS = 1280, 23.0  # of a figure of one panel
_PLOT, _HIGH = fig.Box(141, 118, 1100, 455), 0.65
"""Its plot; and the height of a narrower one, as a share of its width."""
# left and right of all panels over one legend, with letters of 23
_LABEL, _EDGE = 46, 39
_NAME = 62  # above a panel with a title
_NARROW = 20
"""The least width of one of several panels side by side, in letters."""
_GRID_WIDTH, _TOP = 1600, 128
_CELL_HEIGHT = {1: 620, 2: 330}  # of a grid with so many rows
_LOW_CELL = 250  # of a grid with more
_NUMBERS, _BETWEEN, _HEADING = 72, 26, 50  # left of, right of and above a panel


def single(
    title: str,
    subtitle: str,
    x: str,
    y: str,
    curves: Sequence[fig.Curve],
    note: str = "",
) -> fig.Figure:
    """Curves in one pair of axes with labels `x` and `y`, over a legend."""
    return over_legend(title, subtitle, [curves_panel(x, y, curves, note=note)])


def curves_panel(
    x: str,
    y: str,
    curves: Sequence[fig.Curve],
    title: str = "",
    note: str = "",
    log: bool = False,
) -> fig.Panel:
    """Curves without a place. On a `log` axis, heights of zero or less are left out."""
    if log:
        curves = [curve.mapped(_log10) for curve in curves]
    up = fig.y_scale(curves, most=6)._replace(label=y, log=log)
    if log:
        flat = tuple(
            (at, tick_text(float(f"{10**at:.3g}"), 10**at)) for at, _ in up.ticks
        )
        up = up._replace(ticks=flat or fig.log_ticks(*up.ends))
    across = fig.Scale(x, fig.x_limits(curves), 8)
    return fig.Panel(_PLOT, across, up, title, curves=tuple(curves), note=note)


def _log10(values: FloatArray) -> FloatArray:
    return np.log10(values, out=np.full_like(values, np.nan), where=values > 0)


def over_legend(
    title: str,
    subtitle: str,
    panels: Sequence[fig.Panel],
    width: float = _WIDTH,
    letters: float = _LETTERS,
) -> fig.Figure:
    """Panels in a grid over one legend; their boxes are replaced. Without a title they
    begin at the upper edge."""
    unit = letters / _LETTERS
    _, columns = grid_shape(len(panels))
    columns = max(min(columns, int(width / letters / _NARROW)), 1)
    rows = -(-len(panels) // columns)
    named = any(panel.title for panel in panels)
    top = _PLOT.top if title else _NAME / 4 * (not named)
    inside = fig.Box(0, unit * top, width, 0).inset(
        left=unit * _LABEL, right=unit * _EDGE
    )
    between = (
        _PLOT.left - _LABEL,
        _EDGE * (columns > 1),
        _NAME * named,
        5 * 23 * (rows > 1),
    )
    left, right, above, below = (unit * each for each in between)
    across = inside.width / columns - left - right
    plot = across * (_PLOT.height / _PLOT.width if across > 30 * letters else _HIGH)
    cells = inside._replace(height=rows * (plot + above + below)).cells(rows, columns)
    parts = []
    for i, (cell, panel) in enumerate(zip(cells, panels, strict=False)):
        box = cell.inset(left, above, right, below)
        most = max(int(across / unit / 120), 2)  # numbers at an axis
        x, y = (scale._replace(most=min(scale.most, most)) for scale in panel[1:3])
        if i % columns and y.label == panels[i - 1].y.label:
            y = y._replace(label="")
        parts.append(panel._replace(box=box, x=x, y=y))
    return fig.Figure(title, subtitle, tuple(parts), width, letters, legend=True)


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
    """Titled panels in a grid that share the x axis, labelled `x`, each with its own y
    axis."""
    rows, columns = grid_shape(len(panels))
    height = rows * _CELL_HEIGHT.get(rows, _LOW_CELL)
    cells = fig.Box(SIDE, _TOP, _GRID_WIDTH - 2 * SIDE, height).cells(rows, columns)
    ends = fig.x_limits([curve for _, curves in panels for curve in curves])
    few = columns <= 2
    parts = []
    for i, (cell, (name, curves)) in enumerate(zip(cells, panels, strict=False)):
        lowest = i + columns >= len(panels)
        across = fig.Scale(
            x if lowest else "", ends, 8 if few else 5, numbers=lowest, link="x"
        )
        up = fig.y_scale(curves, most=6 if few else 5)
        keys = tuple(
            (curve.ink, f"━ {curve.label}") for curve in fig.in_legend_order(curves)
        )
        box = cell.inset(left=_NUMBERS, top=_HEADING, right=_BETWEEN)
        parts.append(
            fig.Panel(box, across, up, name, "", keys, tuple(curves), note=note)
        )
    size = 20 if few else 17
    return fig.Figure(title, subtitle, tuple(parts), _GRID_WIDTH, size, linked=True)


def grid_shape(panels: int) -> tuple[int, int]:
    """Rows and columns for `panels` pictures: about as many of both, at most 4
    columns."""
    columns = next((c for c in range(1, MAX_COLUMNS) if panels <= c * c), MAX_COLUMNS)
    return -(-panels // columns), columns
