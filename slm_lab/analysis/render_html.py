"""Draws a figure as an interactive page with plotly; pages of a run share one plotly.js."""

import html
import os
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.analysis import figure as look
from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.figure import Curve, Figure, colour_of, runs
from slm_lab.core.types import FloatArray

PLOTLY_JS = "plotly.min.js"
_LINE_WIDTH = {"solid": 2.5, "dashed": 2.0, "faint": 1.0}
_LEGEND_RANK = {"solid": 1, "dashed": 2, "faint": 3}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title><style>body{{margin:0}}</style></head>
<body>{graph}</body>
</html>
"""
_FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"


def ensure_plotly_js(run_dir: Path) -> Path:
    """Puts plotly.js (5 MB) into the run folder unless it is there; returns its path."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_JS
    target = run_dir / PLOTLY_JS
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        write_atomically(target, source.read_bytes())
    return target


def render_html(figure: Figure, plotly_js: str) -> bytes:
    """The figure as a page that loads plotly.js from `plotly_js`, a URL relative to the page."""
    import plotly.io

    traces = [trace for curve in figure.curves for trace in _traces(curve)]
    graph: str = plotly.io.to_html(
        {"data": traces, "layout": _layout(figure)},
        include_plotlyjs=plotly_js,
        full_html=False,
        div_id="graph",
        validate=False,
        config={"displaylogo": False, "responsive": True},
        default_height="100vh",
    )
    title = html.escape(f"{figure.title}: {figure.y_label} / {figure.x_label}")
    return _PAGE.format(title=title, graph=graph).encode()


def relative_url(target: Path, page: Path) -> str:
    """How `page` refers to the file `target` beside or above it."""
    return Path(os.path.relpath(target, page.parent)).as_posix()


def _traces(curve: Curve) -> list[dict[str, Any]]:
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
            "x": curve.x,
            "y": curve.mean,
            "mode": "lines+markers" if lonely and known.sum() < 10 else "lines",
            "line": {**line, "dash": "6px,3px" if curve.style == "dashed" else "solid"},
            "opacity": look.FAINT_OPACITY if faint else 1.0,
            "name": curve.label,
            "showlegend": bool(curve.label),
            "legendrank": _LEGEND_RANK[curve.style],
            "hoverinfo": "skip" if faint else "all",
            "hovertemplate": None if faint else _hover(curve),
            "customdata": curve.std,
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
        xs += [*x.tolist(), *x[::-1].tolist(), None]
        ys += [*high.tolist(), *low[::-1].tolist(), None]
    return xs, ys


def _layout(figure: Figure) -> dict[str, Any]:
    has_legend = any(curve.label for curve in figure.curves)
    return {
        "title": {
            "text": f"<b>{html.escape(figure.title)}</b>",
            "subtitle": {
                "text": html.escape(figure.subtitle),
                "font": {"size": 17, "color": look.MUTED},
            },
            "font": {"size": 23, "color": look.INK},
            "x": 0.02,
            "xanchor": "left",
        },
        "font": {"family": _FONT, "size": 17, "color": look.INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 112, "r": 40, "t": 105, "b": 120 if has_legend else 80},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 17}},
        "xaxis": _x_axis(figure),
        "yaxis": _axis(figure.y_label, [curve.mean for curve in figure.curves]),
        "annotations": [_note(figure.note)] if figure.note else [],
    }


def _note(text: str) -> dict[str, Any]:
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "font": {"size": 20, "color": look.MUTED},
    }


def _x_axis(figure: Figure) -> dict[str, Any]:
    axis = _axis(figure.x_label, [curve.x for curve in figure.curves])
    axis |= {"showline": True, "linecolor": look.MUTED, "hoverformat": ",.7~r"}
    if figure.curves:
        first = min(float(curve.x[0]) for curve in figure.curves)
        last = max(float(curve.x[-1]) for curve in figure.curves)
        margin = 0.01 * (last - first)
        axis["range"] = [first - margin, last + margin] if margin else None
    return axis


def _axis(label: str, values: list[FloatArray]) -> dict[str, Any]:
    largest = max((float(np.nanmax(np.abs(v))) for v in values if np.isfinite(v).any()), default=0)
    axis: dict[str, Any] = {
        "title": {"text": label, "standoff": 12},
        "gridcolor": look.GRID,
        "zeroline": False,
        "exponentformat": "e",
        "nticks": 8,
    }
    if largest >= look.BIG:
        axis["tickformat"] = "~s"  # 50k; small numbers it would write as 500m
    if not values:
        axis["showticklabels"] = axis["showgrid"] = False
    return axis


def _rgba(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
