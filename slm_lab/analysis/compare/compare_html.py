"""Draws the bars and the dashboard of a comparison as interactive pages."""

import html
from typing import Any

from slm_lab.analysis.compare.compare_figure import BAR_WIDTH, HOLLOW, BarChart, Dashboard, Plot
from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import tinted, y_limits
from slm_lab.analysis.figure.page import render_page
from slm_lab.analysis.figure.render_html import axis_of, base_layout, note_at, traces_of

_TABLE_ROW, _NOTE_ROW, _PLOTS_HEIGHT = 30, 22, 680  # pixels
_COLUMN, _PLOT_WIDTH = 0.345, 0.29  # shares of the page's plot
_MARGIN = {"l": 70, "r": 30, "t": 120, "b": 20}


def render_chart_html(chart: BarChart, plotly_js: str) -> bytes:
    """The bars as a page that loads plotly.js from `plotly_js`, a URL relative to the page."""
    layout: dict[str, Any] = {
        **base_layout(chart.title, chart.subtitle),
        "margin": {**_MARGIN, "l": 90},
        "showlegend": False,
        "annotations": [_words(_legend(chart), 0.0, 1.0)],
        "shapes": [],
    }
    traces = _draw_chart(layout, chart, "", [0.0, 1.0], [0.1, 0.9])
    layout["yaxis"]["title"] = {"text": chart.y_label}
    return render_page(chart.title, traces, layout, plotly_js)


def render_dashboard_html(board: Dashboard, plotly_js: str) -> bytes:
    """The dashboard as a page that loads plotly.js from `plotly_js`, relative to the page."""
    table = _TABLE_ROW * (len(board.table.rows) + 1) + 4
    notes = _NOTE_ROW * len(board.notes)
    height = _PLOTS_HEIGHT + table + notes
    foot = (table + notes) / height  # of the plots, as a share of the page's plot
    layout: dict[str, Any] = {
        **base_layout(board.title, board.subtitle),
        "margin": _MARGIN,
        "showlegend": False,
        "annotations": [],
        "shapes": [],
    }
    traces: list[dict[str, Any]] = []
    rows = -(-len(board.plots) // 2)
    for i, plot in enumerate(board.plots):
        row, column = divmod(i, 2)
        up = (1 - foot) / rows
        top = 1 - row * up
        across = [_COLUMN * column, _COLUMN * column + _PLOT_WIDTH]
        traces += _draw_plot(layout, plot, str(i + 1) if i else "", across, [top - up, top])
    name, across = str(len(board.plots) + 1), [2 * _COLUMN + 0.01, 1.0]
    low = foot + 80 / height
    traces += _draw_chart(layout, board.bars, name, across, [low, 1 - 90 / height])
    title = f"<b>speed-up: {html.escape(board.bars.y_label)}</b>"
    layout["annotations"] += [
        _words(title, across[0], 1.0),
        _words(_legend(board.bars), across[0], 1 - 32 / height, look.INK, 13),
    ]
    traces.append(_table(board, [notes / height, foot]))
    for i, note in enumerate(board.notes):
        y = (notes - _NOTE_ROW * i) / height
        layout["annotations"].append(_words(html.escape(note), 0.0, y, look.MUTED, 13))
    whole = height + _MARGIN["t"] + _MARGIN["b"]
    return render_page(board.title, traces, layout, plotly_js, min_height=whole)


def _draw_plot(
    layout: dict[str, Any], plot: Plot, name: str, across: list[float], up: list[float]
) -> list[dict[str, Any]]:
    """Adds a plot's axes and words to `layout`, in a cell of the page; returns its traces."""
    curves = plot.panel.curves
    height = up[1] - up[0]
    inside = [up[0] + 0.2 * height, up[1] - 0.12 * height]
    axes: dict[str, tuple[dict[str, Any], list[float]]] = {
        "x": (axis_of(plot.ends, ticks=6, empty=not curves), across),
        "y": (axis_of(y_limits(curves), ticks=6, empty=not curves), inside),
    }
    for (which, (axis, domain)), other in zip(axes.items(), "yx", strict=True):
        place = {"domain": domain, "anchor": f"{other}{name}", "tickfont": {"size": 13}}
        layout[f"{which}axis{name}"] = {**axis, **place}
    title = {"text": plot.x_label, "font": {"size": 14}, "standoff": 6}
    layout[f"xaxis{name}"] |= {"title": title, "showline": True, "linecolor": look.MUTED}
    words = f"<b>{html.escape(plot.panel.title)}</b>"
    layout["annotations"].append(_words(words, across[0], up[1]))
    on = {"xaxis": f"x{name}", "yaxis": f"y{name}"}
    if not curves:  # axes without a trace are not drawn
        layout["annotations"].append(note_at(plot.panel.note, sum(across) / 2, sum(inside) / 2))
        return [{"type": "scatter", "x": [None], "y": [None], **on}]
    return [{**trace, **on} for curve in curves for trace in traces_of(curve)]


def _draw_chart(
    layout: dict[str, Any], chart: BarChart, name: str, across: list[float], up: list[float]
) -> list[dict[str, Any]]:
    """Adds the axes of the bars and their words to `layout`; returns the traces."""
    layout[f"xaxis{name}"] = {
        "domain": across,
        "anchor": f"y{name}",
        "range": list(chart.x_ends),
        "tickvals": chart.places,
        "ticktext": [bar.label for bar in chart.bars],
        "showline": True,
        "linecolor": look.MUTED,
        "showgrid": False,
        "zeroline": False,
    }
    axis = axis_of(chart.y_ends, ticks=8, empty=False)
    layout[f"yaxis{name}"] = {**axis, "domain": up, "anchor": f"x{name}"}
    below = {"yref": f"y{name} domain", "y": 0, "yanchor": "top", "xanchor": "center"}
    layout["annotations"] += [
        {**_words(f"<b>{html.escape(group)}</b>", x, 0), "xref": f"x{name}", "yshift": -26, **below}
        for group, x in chart.group_places.items()
    ]
    layout["annotations"] += [
        {**_words(html.escape(bar.note), x, 0, look.MUTED), "xref": f"x{name}", **below,
         "yanchor": "bottom", "textangle": -90}
        for bar, x in zip(chart.bars, chart.places, strict=True)
        if bar.height is None
    ]  # fmt: skip
    layout["annotations"].append(
        {**_words(html.escape(chart.x_label), across[0] - 0.006, 0, look.MUTED, 13), **below,
         "xanchor": "right", "yshift": -8}
    )  # fmt: skip
    base = {"type": "line", "xref": f"x{name} domain", "yref": f"y{name}", "x0": 0, "x1": 1}
    line = {"color": look.MUTED, "width": 1.5, "dash": "6px,3px"}
    layout["shapes"].append({**base, "y0": chart.base, "y1": chart.base, "line": line})
    on = {"xaxis": f"x{name}", "yaxis": f"y{name}"}
    return [{**trace, **on} for trace in (_bars(chart), _ideals(chart))]


def _bars(chart: BarChart) -> dict[str, Any]:
    full = [tinted(bar.colour, bar.tint) for bar in chart.bars]
    fills = [
        tinted(bar.colour, HOLLOW) if bar.hollow else colour
        for bar, colour in zip(chart.bars, full, strict=True)
    ]
    known = [(bar.height, bar.low, bar.high) for bar in chart.bars]
    return {
        "type": "bar",
        "x": chart.places,
        "width": BAR_WIDTH,
        "y": [height for height, _, _ in known],
        "text": ["" if height is None else f"{height:.2f}" for height, _, _ in known],
        "textposition": "inside",
        "insidetextanchor": "start",
        "marker": {"color": fills, "line": {"color": full, "width": 2}},
        "error_y": {
            "type": "data",
            "array": [None if height is None else high - height for height, _, high in known],
            "arrayminus": [None if height is None else height - low for height, low, _ in known],
            "symmetric": False,
            "color": look.INK,
            "thickness": 1.5,
            "width": 0,
        },
        "hovertemplate": "%{y:.3~g}<extra></extra>",
    }


def _ideals(chart: BarChart) -> dict[str, Any]:
    """A mark at each bar, as long as it is wide and a little longer."""
    half = 0.6 * BAR_WIDTH
    ends = [(x - half, x + half, None) for x in chart.places]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for mark in ends for x in mark],
        "y": [y for bar in chart.bars for y in (bar.ideal, bar.ideal, None)],
        "line": {"color": look.INK, "width": 3},
        "hovertemplate": "ideal: %{y}<extra></extra>",
    }


def _legend(chart: BarChart) -> str:
    """What the marks are, as markup; a second line where there are many."""
    samples = {"ideal": "━━", "base": "╌╌", "spread": "│", "hollow": "☐"}
    marks = [f"{samples[mark]} {html.escape(text)}" for mark, text in chart.legend]
    return "   ".join(marks[:3]) + "".join(f"<br>{mark}" for mark in marks[3:])


def _words(text: str, x: float, y: float, colour: str = look.INK, size: int = 16) -> dict[str, Any]:
    """Markup whose upper left corner is at (x, y), as shares of the page's plot."""
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": "top",
        "showarrow": False,
        "align": "left",
        "font": {"size": size, "color": colour},
    }


def _table(board: Dashboard, up: list[float]) -> dict[str, Any]:
    """The numbers; before them the colours of the curves."""
    columns = [list(map(html.escape, column)) for column in zip(*board.table.rows, strict=True)]
    _, *rest = board.table.header
    colours = [tinted(*swatch) for swatch in board.swatches]
    aligned = ["right", "left", *("right" for _ in rest)]
    plain = {
        "align": aligned,
        "fill": {"color": "white"},
        "line": {"color": look.GRID, "width": 0},
        "height": _TABLE_ROW,
    }
    return {
        "type": "table",
        "domain": {"x": [0, 1], "y": up},
        "columnwidth": [0.3, 1.6, *(1 for _ in rest)],
        "header": {
            "values": ["", *(f"<b>{html.escape(name)}</b>" for name in board.table.header)],
            "font": {"size": 15, "color": look.MUTED},
            **plain,
        },
        "cells": {
            "values": [["━━" for _ in colours], *columns],
            "font": {"size": 15, "color": [colours, *(look.INK for _ in columns)]},
            **plain,
        },
    }
