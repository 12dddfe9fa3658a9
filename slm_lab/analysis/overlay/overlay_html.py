"""Draws an overlay as an interactive page: a click in the legend hides a curve with its band."""

import html
from typing import Any

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import Curve, Figure, colour_of, runs, x_limits, y_limits
from slm_lab.analysis.figure.page import numbers, render_page
from slm_lab.analysis.figure.render_html import axis_of, base_layout, note_at, traces_of
from slm_lab.analysis.overlay.overlay import Band, Overlay

_LETTER, _SAMPLE, _ROOM = 9.5, 60, 1000  # pixels of the legend, to guess how many rows it has
_ROW = 27
_LEAST_PLOT = 300  # pixels, below which a page scrolls instead of getting flatter


def render_overlay_html(overlay: Overlay, plotly_js: str) -> bytes:
    """The overlay as a page that loads plotly.js from `plotly_js`, a URL relative to the page."""
    figure = overlay.figure
    pairs = list(zip(figure.curves, overlay.bands, strict=True))
    names = {curve.colour: curve.label for curve in figure.curves if curve.label}
    shaded = [_shade(curve, band) for curve, band in pairs if band is not None]
    lines = [_line(curve, band, names[curve.colour]) for curve, band in pairs]
    title = f"{figure.title}: {figure.y_label} / {figure.x_label}"
    layout = _layout(overlay)
    whole = _LEAST_PLOT + layout["margin"]["t"] + layout["margin"]["b"]
    return render_page(title, [*shaded, *lines], layout, plotly_js, min_height=whole)


def _line(curve: Curve, band: Band | None, name: str) -> dict[str, Any]:
    """A curve that says its name and its interval when it is pointed at."""
    (trace,) = traces_of(curve)
    known = None if band is None else [*zip(numbers(band.low), numbers(band.high), strict=True)]
    spread = "" if band is None else "  [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]"
    return trace | {
        "name": html.escape(name),
        "legendgroup": str(curve.colour),
        "customdata": known,
        "hovertemplate": "%{fullData.name}: %{y:.5~g}" + spread + "<extra></extra>",
    }


def _shade(curve: Curve, band: Band) -> dict[str, Any]:
    """The band as one closed line around each of its stretches; None lifts the pen."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in runs(np.isfinite(band.low)):
        x, low, high = curve.x[part], band.low[part], band.high[part]
        xs += [*numbers(x), *numbers(x[::-1]), None]
        ys += [*numbers(high), *numbers(low[::-1]), None]
    return {
        "type": "scatter",
        "x": xs,
        "y": ys,
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": colour_of(curve) + f"{round(255 * look.BAND_OPACITY):02X}",
        "hoverinfo": "skip",
        "legendgroup": str(curve.colour),
        "showlegend": False,
    }


def _layout(overlay: Overlay) -> dict[str, Any]:
    figure = overlay.figure
    x_axis = axis_of(x_limits(figure.curves), ticks=8, empty=not figure.curves)
    x_axis |= {"showline": True, "linecolor": look.MUTED, "hoverformat": ",.7~r"}
    y_axis = axis_of(y_limits(overlay.in_view), ticks=8, empty=not figure.curves)
    return {
        **base_layout(figure.title, figure.subtitle),
        "margin": {"l": 112, "r": 40, "t": 105, "b": 92 + _ROW * _legend_rows(figure)},
        "hovermode": "x unified",
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 16},
            "traceorder": "normal",
        },
        "xaxis": {**x_axis, "title": {"text": figure.x_label, "standoff": 12}},
        "yaxis": {**y_axis, "title": {"text": figure.y_label, "standoff": 12}},
        "annotations": [note_at(figure.note, 0.5, 0.5)] if figure.note else [],
    }


def _legend_rows(figure: Figure) -> int:
    """In a window of the usual width. Plotly makes all entries as wide as the widest."""
    widest = max((len(curve.label) for curve in figure.curves), default=0)
    columns = max(int(_ROOM / (_SAMPLE + _LETTER * widest)), 1)
    return -(-sum(bool(curve.label) for curve in figure.curves) // columns)
