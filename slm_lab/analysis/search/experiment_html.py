"""The graph of a search as one interactive page: importances, parallel axes, best Trials, dots."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import tick_text
from slm_lab.analysis.figure.html_band import (
    HEADING,
    LETTER,
    MARGIN,
    PAGE_WIDTH,
    Band,
    heading,
    short,
)
from slm_lab.analysis.figure.page import numbers, render_page
from slm_lab.analysis.figure.png import ticks
from slm_lab.analysis.figure.render_html import base_layout, note_at
from slm_lab.analysis.figure.shade import SHADES
from slm_lab.analysis.search.experiment_bars_html import draw_importances, importances_height
from slm_lab.analysis.search.experiment_dots_html import dots_height, draw_dots
from slm_lab.analysis.search.experiment_figure import AxisOf, ExperimentFigure
from slm_lab.analysis.search.variable_axes import Scale

_BETWEEN = 64  # pixels between two parts of the page
_PARALLEL, _LABELS = 420, 34  # of the parallel axes, and of their names
_PARALLEL_ENDS = [0.02, 0.97]
_NAME = 24  # letters above an axis, at most
_TABLE_ROW = 29


def render_experiment_html(figure: ExperimentFigure, plotly_js: str) -> bytes:
    """The figure as a page that loads plotly.js from `plotly_js`, a URL relative to the page.

    Parts are below each other: how important each variable is, parallel axes of all, a table of the
    best Trials, and the dots of every metric over every variable.
    """
    bands = _bands(
        [
            importances_height(figure),
            _PARALLEL + _LABELS,
            _TABLE_ROW * (len(figure.best.rows) + 1) + 6,
            dots_height(figure),
        ]
    )
    layout: dict[str, Any] = {
        **base_layout(figure.title, figure.subtitle),
        "margin": MARGIN,
        "showlegend": False,
        "hovermode": "closest",
        "annotations": [],
        "coloraxis": _colour_axis(figure),
    }
    parts = zip(bands, (draw_importances, _parallel, _best, draw_dots), strict=True)
    traces = [trace for band, draw in parts for trace in draw(layout, figure, band)]
    height = bands[0].whole + MARGIN["t"] + MARGIN["b"]
    return render_page(figure.title, traces, layout, plotly_js, min_height=height)


def _bands(heights: Sequence[int]) -> list[Band]:
    """From the top down, parts of so many pixels."""
    whole = sum(heights) + len(heights) * HEADING + (len(heights) - 1) * _BETWEEN
    bands = []
    top = whole
    for height in heights:
        top -= HEADING
        bands.append(Band((top - height) / whole, top / whole, whole))
        top -= height + _BETWEEN
    return bands


def _parallel(layout: dict[str, Any], figure: ExperimentFigure, band: Band) -> list[dict[str, Any]]:
    """A line for each Trial over axes of variables and results."""
    hint = "drag along an axis to choose trials, click it to let go; drag a name to move its axis"
    layout["annotations"].append(heading("Parallel coordinates", band, hint))
    inside = [band.foot, band.below_top(_LABELS)]
    if not figure.parallel_trials:
        layout["annotations"].append(note_at("no results yet", 0.5, sum(inside) / 2))
        return []
    shading = figure.parallel_shading
    colour = np.where(np.isnan(shading.values), shading.ends[0], shading.values)
    letters = min(int(PAGE_WIDTH / len(figure.parallel) / LETTER), _NAME)
    return [
        {
            "type": "parcoords",
            "domain": {"x": _PARALLEL_ENDS, "y": inside},
            "line": {"color": numbers(colour), "coloraxis": "coloraxis"},
            "dimensions": [_dimension(axis, letters) for axis in figure.parallel],
            "labelfont": {"size": 14, "color": look.INK},
            "tickfont": {"size": 12, "color": look.INK},
            "rangefont": {"size": 1, "color": "rgba(0,0,0,0)"},
        }
    ]


def _dimension(axis: AxisOf, letters: int) -> dict[str, Any]:
    scale = axis.scale
    largest = max(map(abs, scale.ends))
    plain = [(value, tick_text(value, largest)) for value in _whole(scale, ticks(scale.ends, 6))]
    labels = scale.ticks or plain
    return {
        "label": html.escape(short(axis.name, letters)),
        "values": numbers(scale.at),
        "range": list(scale.ends),
        "tickvals": [place for place, _ in labels],
        "ticktext": [text for _, text in labels],  # no markup here
    }


def _best(layout: dict[str, Any], figure: ExperimentFigure, band: Band) -> list[dict[str, Any]]:
    """The table of the best Trials."""
    table = figure.best
    layout["annotations"].append(heading("The best trials", band))
    if not table.rows:
        layout["annotations"].append(note_at("no results yet", 0.5, band.middle))
        return []
    names = [short(name) for name in table.header]
    columns = list(zip(names, *table.rows, strict=True))
    letters = [max(len(name) + 2, *map(len, cells)) + 2 for name, *cells in columns]
    size = min(14.0, 14 * PAGE_WIDTH / (LETTER * sum(letters)))
    plain = {
        "align": ["right", "left", *("right" for _ in names[2:])],
        "fill": {"color": "white"},
        "line": {"color": look.GRID, "width": 0},
        "height": _TABLE_ROW,
    }
    head = [f"<b>{html.escape(name)}</b>" for name in names]
    body = [list(map(html.escape, cells)) for _, *cells in columns]
    return [
        {
            "type": "table",
            "domain": {"x": [0, 1], "y": [band.foot, band.top]},
            "columnwidth": letters,
            "header": {"values": head, "font": {"size": size, "color": look.MUTED}, **plain},
            "cells": {"values": body, "font": {"size": size, "color": look.INK}, **plain},
        }
    ]


def _colour_axis(figure: ExperimentFigure) -> dict[str, Any]:
    shading = figure.shading
    return {
        "colorscale": [[i / (len(SHADES) - 1), shade] for i, shade in enumerate(SHADES)],
        "cmin": shading.ends[0],
        "cmax": shading.ends[1],
        "colorbar": {
            "title": {"text": shading.name, "side": "top", "font": {"size": 14}},
            "orientation": "h",
            "thickness": 14,
            "len": 0.24,
            "x": 1.0,
            "xanchor": "right",
            "y": 1.0,
            "yanchor": "bottom",
            "tickfont": {"size": 12},
            "nticks": 5,
        },
    }


def _whole(scale: Scale, values: list[float]) -> list[float]:
    return [value for value in values if value == int(value)] if scale.whole else values
