"""Draws a figure as an interactive page with plotly; pages of a run share one plotly.js."""

import html
from typing import Any

import numpy as np

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import Curve, Figure, colour_of, runs, x_limits, y_limits
from slm_lab.analysis.figure.page import FONT, numbers, render_page
from slm_lab.core.types import FloatArray

_LINE_WIDTH = {"solid": 2.5, "dashed": 2.0, "faint": 1.0}
_LEGEND_RANK = {"solid": 1, "dashed": 2, "faint": 3}


def render_html(figure: Figure, plotly_js: str) -> bytes:
    """The figure as a page that loads plotly.js from `plotly_js`, a URL relative to the page."""
    traces = [trace for curve in figure.curves for trace in traces_of(curve)]
    title = f"{figure.title}: {figure.y_label} / {figure.x_label}"
    return render_page(title, traces, _layout(figure), plotly_js)


def base_layout(title: str, subtitle: str) -> dict[str, Any]:
    """What the pages of figures and overviews have in common: heading, letters, colours."""
    return {
        "title": {
            "text": f"<b>{html.escape(title)}</b>",
            "subtitle": {
                "text": html.escape(subtitle),
                "font": {"size": 17, "color": look.MUTED},
            },
            "font": {"size": 23, "color": look.INK},
            "x": 0.02,
            "xanchor": "left",
        },
        "font": {"family": FONT, "size": 17, "color": look.INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
    }


def traces_of(curve: Curve) -> list[dict[str, Any]]:
    """The band of a curve, if it has one, and its line."""
    faint = curve.style == "faint"
    known = np.isfinite(curve.mean)
    traces: list[dict[str, Any]] = []
    if curve.std is not None:
        x, y = _outline(curve, curve.std)
        traces.append(
            {
                "type": "scatter",
                "x": x,
                "y": y,
                "mode": "lines",
                "line": {"width": 0},
                "fill": "toself",
                "fillcolor": _rgba(colour_of(curve), look.BAND_OPACITY),
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    lonely = any(stretch.stop - stretch.start == 1 for stretch in runs(known))
    line = {"color": colour_of(curve), "width": _LINE_WIDTH[curve.style]}
    traces.append(
        {
            "type": "scatter",
            "x": numbers(curve.x),
            "y": numbers(curve.mean),
            "mode": "lines+markers" if lonely and known.sum() < 10 else "lines",
            "line": {**line, "dash": "6px,3px" if curve.style == "dashed" else "solid"},
            "opacity": look.FAINT_OPACITY if faint else 1.0,
            "name": curve.label,
            "showlegend": bool(curve.label),
            "legendrank": _LEGEND_RANK[curve.style],
            "hoverinfo": "skip" if faint else "all",
            "hovertemplate": None if faint else _hover(curve),
            "customdata": None if curve.std is None else numbers(curve.std),
        }
    )
    return traces


def _hover(curve: Curve) -> str:
    spread = "" if curve.std is None else " ± %{customdata:.4~g}"
    return "%{y:.5~g}" + spread + "<extra></extra>"


def _outline(curve: Curve, std: FloatArray) -> tuple[list[float | None], list[float | None]]:
    """The closed line around each unbroken stretch of a band; None lifts the pen."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in runs(np.isfinite(curve.mean)):
        x, low, high = curve.x[part], (curve.mean - std)[part], (curve.mean + std)[part]
        xs += [*numbers(x), *numbers(x[::-1]), None]
        ys += [*numbers(high), *numbers(low[::-1]), None]
    return xs, ys


def _layout(figure: Figure) -> dict[str, Any]:
    has_legend = any(curve.label for curve in figure.curves)
    x_axis = axis_of(x_limits(figure.curves), ticks=8, empty=not figure.curves)
    x_axis |= {"showline": True, "linecolor": look.MUTED, "hoverformat": ",.7~r"}
    y_axis = axis_of(y_limits(figure.curves), ticks=8, empty=not figure.curves)
    return {
        **base_layout(figure.title, figure.subtitle),
        "margin": {"l": 112, "r": 40, "t": 105, "b": 120 if has_legend else 80},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 17}},
        "xaxis": {**x_axis, "title": {"text": figure.x_label, "standoff": 12}},
        "yaxis": {**y_axis, "title": {"text": figure.y_label, "standoff": 12}},
        "annotations": [note_at(figure.note, 0.5, 0.5)] if figure.note else [],
    }


def note_at(text: str, x: float, y: float) -> dict[str, Any]:
    """Words in the middle of empty axes, at (x, y) as shares of the page's plot."""
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": x,
        "y": y,
        "showarrow": False,
        "font": {"size": 20, "color": look.MUTED},
    }


def axis_of(ends: tuple[float, float], *, ticks: int, empty: bool) -> dict[str, Any]:
    """An axis between `ends` with at most so many `ticks`, without numbers if there is no curve."""
    largest = max(map(abs, ends))
    axis: dict[str, Any] = {
        "range": list(ends),
        "gridcolor": look.GRID,
        "zeroline": False,
        "exponentformat": "e",
        "nticks": ticks,
    }
    if look.BIG <= largest < look.HUGE:
        axis["tickformat"] = "~s"  # 50k; small numbers it would write as 500m
    if empty:
        axis["showticklabels"] = axis["showgrid"] = False
    return axis


def _rgba(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
