"""Draws an overview as one interactive page; zooming or pointing into a panel acts on all."""

import html
from typing import Any

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import (
    Overview,
    Panel,
    colour_of,
    in_legend_order,
    x_limits,
    y_limits,
)
from slm_lab.analysis.figure.page import render_page
from slm_lab.analysis.figure.panel_grid import Cell, cells, grid_shape
from slm_lab.analysis.figure.render_html import axis_of, base_layout, note_at, traces_of

_MARGIN = {"l": 24, "r": 24, "t": 122, "b": 62}
_NUMBERS, _BETWEEN = 0.05, 0.015  # shares of the plot's width left and right of a panel's axes
_HEADING, _PLOT_HEIGHT = 46, 820  # pixels above a panel, and of the plot in a usual window
_LOW_CELL = 190  # pixels, below which a page scrolls instead of getting flatter

# A panel reports the pointer once for the pointer itself, and once more for each call below,
# which comes without an event of the mouse.
_HOVER_ALL = """
const graph = document.getElementById("graph");
const panels = graph._fullLayout._subplots.cartesian;
graph.on("plotly_hover", seen => {
  if (seen.event) Plotly.Fx.hover(graph, {xval: seen.xvals[0]}, panels);
});
graph.on("plotly_unhover", () => Plotly.Fx.unhover(graph));
"""


def render_overview_html(overview: Overview, plotly_js: str) -> bytes:
    """The overview as a page that loads plotly.js from `plotly_js`, a URL relative to the page."""
    rows, columns = grid_shape(len(overview.panels))
    ends = x_limits([curve for panel in overview.panels for curve in panel.curves])
    layout: dict[str, Any] = {
        **base_layout(overview.title, overview.subtitle),
        "margin": _MARGIN,
        "hovermode": "x",
        "showlegend": False,
        "annotations": [],
    }
    traces: list[dict[str, Any]] = []
    for i, cell in enumerate(cells(len(overview.panels))):
        panel, name = overview.panels[i], str(i + 1) if i else ""
        across, up = _domains(cell, rows, columns)
        x_axis = axis_of(ends, ticks=5 if columns > 2 else 8, empty=not panel.curves)
        layout[f"xaxis{name}"] = {
            **x_axis,
            "domain": across,
            "anchor": f"y{name}",
            "matches": "x" if i else None,
            "showline": True,
            "linecolor": look.MUTED,
            "showticklabels": cell.lowest and bool(panel.curves),
            "tickfont": {"size": 13},
            "hoverformat": ",.7~r",
            "title": {"text": overview.x_label if cell.lowest else "", "font": {"size": 14}},
        }
        y_axis = axis_of(y_limits(panel.curves), ticks=5, empty=not panel.curves)
        layout[f"yaxis{name}"] = {
            **y_axis,
            "domain": up,
            "anchor": f"x{name}",
            "tickfont": {"size": 13},
        }
        layout["annotations"] += _words(panel, across, up)
        axes = {"xaxis": f"x{name}", "yaxis": f"y{name}"}
        traces += [{**trace, **axes} for curve in panel.curves for trace in traces_of(curve)]
        if not panel.curves:  # axes without a trace are not drawn
            traces.append({"type": "scatter", "x": [None], "y": [None], **axes})
    height = _MARGIN["t"] + _MARGIN["b"] + rows * _LOW_CELL
    return render_page(
        overview.title, traces, layout, plotly_js, min_height=height, script=_HOVER_ALL
    )


def _domains(cell: Cell, rows: int, columns: int) -> tuple[list[float], list[float]]:
    """The panel's axes, across and upwards, as shares of the page's plot."""
    width, height = 1 / columns, 1 / rows
    left, bottom = cell.column * width, 1 - (cell.row + 1) * height
    heading = _HEADING / max(_PLOT_HEIGHT, rows * _LOW_CELL)
    return [left + _NUMBERS, left + width - _BETWEEN], [bottom, bottom + height - heading]


def _words(panel: Panel, across: list[float], up: list[float]) -> list[dict[str, Any]]:
    """The panel's title with what its curves are, and its note."""
    keys = [
        f'  <span style="color:{colour_of(curve)};font-size:13px">━ {html.escape(curve.label)}'
        "</span>"
        for curve in in_legend_order(panel.curves)
    ]
    title = {
        "text": f"<b>{html.escape(panel.title)}</b>{''.join(keys)}",
        "xref": "paper",
        "yref": "paper",
        "x": across[0],
        "y": up[1],
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 15, "color": look.INK},
    }
    if panel.curves:
        return [title]
    return [title, note_at(panel.note, sum(across) / 2, sum(up) / 2)]
