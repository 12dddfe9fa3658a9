"""Plotly's traces of what a figure shows."""

import html
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from slm_lab.analysis.figure import look
from slm_lab.analysis.figure.figure import Bar, Curve, Dots, Panel, Parallel, Scale, Table, runs
from slm_lab.analysis.figure.layout import short
from slm_lab.analysis.figure.png import BAR_WIDTH, HOLLOW
from slm_lab.core.types import FloatArray

Trace: TypeAlias = dict[str, Any]
"""A trace of plotly, which validates it once, in a figure: its own classes do so three times."""

PIXEL = 0.77
"""Pixels of a page for a pixel of the PNG."""
DASH = "6px,3px"

_LINE_WIDTH = {"solid": 2.5, "dashed": 2.0, "faint": 1.0}
_PAGE_WIDTH, _LETTER, _LONGEST = 1200, 8.5, 24  # pixels, and letters of a name
_MANY = 4000  # dots, from which on a browser draws them by WebGL
_DOT, _SMALL_DOT = 9, 6


def _trace(kind: str, **options: Any) -> Trace:
    return {"type": kind, **options}


def panel_traces(panel: Panel, panels: int) -> list[Trace]:
    """Bands, lines, bars and dots of one of so many panels, in the order of drawing."""
    if panel.is_empty:
        empty = _trace("scatter", x=[None], y=[None], showlegend=False)
        return [empty]  # axes without a trace are not drawn
    name, traces = "", list[Trace]()
    for curve in panel.curves:
        name = curve.label or name  # a curve without a label belongs to the one before it
        traces += _curve(curve, name)
    traces.sort(key=lambda trace: "fill" not in trace)  # bands first
    if panel.bars:
        traces += _bars(panel.bars, panel.horizontal)
    if panel.base is not None:
        line = {"color": look.MUTED, "width": 1.5, "dash": DASH}
        base = _trace("scatter", x=panel.x.ends, y=[panel.base] * 2, mode="lines", line=line)
        traces.append({**base, "hoverinfo": "skip"})
    if panel.dots is not None:
        traces += _dots(panel.dots, panel.x, panels)
    return traces


def _curve(curve: Curve, name: str) -> list[Trace]:
    """The band of a curve, if it has one, and its line, which shows its name when pointed at."""
    faint, known = curve.style == "faint", np.isfinite(curve.mean)
    alone = any(stretch.stop - stretch.start == 1 for stretch in runs(known))
    hover = "%{fullData.name}: %{y:.5~g}" if name else "%{y:.5~g}"
    shared = {"name": html.escape(name), "legendgroup": name}
    line = _trace(
        "scatter",
        x=curve.x,
        y=curve.mean,
        mode="lines+markers" if alone and known.sum() < 10 else "lines",
        line={
            "color": curve.ink,
            "width": _LINE_WIDTH[curve.style],
            "dash": DASH if curve.style == "dashed" else "solid",
        },
        opacity=curve.opacity,
        showlegend=bool(curve.label),
        legendrank=1 + ("solid", "dashed", "faint").index(curve.style),
        **shared,
    )
    if faint:
        return [{**line, "hoverinfo": "skip"}]
    if curve.band is None:
        return [{**line, "hovertemplate": f"{hover}<extra></extra>"}]
    ends = "  [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]<extra></extra>"
    line |= {"hovertemplate": hover + ends, "customdata": np.column_stack(curve.band)}
    x, y = _outline(curve.x, *curve.band)
    band = _trace(
        "scatter",
        x=x,
        y=y,
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=f"{curve.ink}{round(255 * look.BAND_OPACITY):02X}",
        hoverinfo="skip",
        showlegend=False,
        **shared,
    )
    return [band, line]


def _outline(x: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The closed line around each unbroken stretch of a band; NaN lifts the pen."""
    gap, parts = np.full(1, np.nan), runs(np.isfinite(low))
    xs = [each for part in parts for each in (x[part], x[part][::-1], gap)]
    ys = [each for part in parts for each in (high[part], low[part][::-1], gap)]
    return np.concatenate([gap[:0], *xs]), np.concatenate([gap[:0], *ys])


def _bars(bars: Sequence[Bar], flat: bool) -> list[Trace]:
    """The bars, and a mark across each place; both horizontal if `flat`."""
    known = [bar for bar in bars if bar.height is not None]
    full = [look.tinted(bar.colour, bar.tint) for bar in known]
    fills = [look.tinted(b.colour, HOLLOW if b.hollow else b.tint) for b in known]
    half = 0.6 * BAR_WIDTH
    ends = [end for bar in bars for end in (bar.place - half, bar.place + half, None)]
    marks = [mark for bar in bars for mark in (bar.mark, bar.mark, None)]
    spread = {
        "array": [bar.high - (bar.height or 0) for bar in known],
        "arrayminus": [(bar.height or 0) - bar.low for bar in known],
        "symmetric": False,
        "color": look.INK,
        "thickness": 1.5,
        "width": 0,
    }
    return [
        _trace(
            "bar",
            **_swapped(flat, [bar.place for bar in known], [bar.height for bar in known]),
            orientation="h" if flat else "v",
            width=BAR_WIDTH,
            marker={"color": fills, "line": {"color": full, "width": 2}},
            error_y=None if flat else spread,
            text=None if flat else [bar.text for bar in known],
            textposition="inside",
            insidetextanchor="start",
            customdata=[bar.hover for bar in known],
            hovertemplate="%{customdata}<extra></extra>",
        ),
        _trace(
            "scatter",
            **_swapped(flat, ends, marks),
            mode="lines",
            line={"color": look.INK, "width": 3},
            hoverinfo="skip",
        ),
    ]


def _swapped(flat: bool, places: Sequence[Any], heights: Sequence[Any]) -> dict[str, Any]:
    """Places and heights as x and y, or as y and x if bars are horizontal."""
    return dict(zip("yx" if flat else "xy", (places, heights), strict=True))


def _dots(dots: Dots, x: Scale, panels: int) -> list[Trace]:
    """The hollow dots and, before them, the filled ones."""
    many = len(dots.x) * panels > _MANY
    kind = "scattergl" if many else "scatter"
    across = 10.0**dots.x if x.log else dots.x
    filled = np.array(dots.filled, np.bool_)
    return [
        _trace(
            kind,
            x=across[these],
            y=dots.y[these],
            text=np.array(dots.hover)[these].tolist(),
            mode="markers",
            marker={
                "color": np.array(dots.colours)[these].tolist(),
                "symbol": symbol,
                "size": _SMALL_DOT if many else _DOT,
                "line": {"width": width},
            },
            hovertemplate=f"%{{text}}<br>{dots.name} %{{y:.4~g}}<extra></extra>",
        )
        for symbol, width, these in (("circle-open", 1.5, ~filled), ("circle", 0, filled))
        if these.any()
    ]


def table_trace(part: Table, domain: Any) -> Trace:
    """The cells; the colours of the rows before them."""
    header, rows, swatches = part.table.header, part.table.rows, part.swatches
    columns = list(zip(*([short(name, _LONGEST) for name in header], *rows), strict=True))
    letters = [max(map(len, column)) + 4 for column in columns]
    size = min(14.0, 14 * _PAGE_WIDTH / (_LETTER * sum(letters)))
    cells = [list(map(html.escape, column)) for column in columns]
    aligned = ["left" if i == part.table.words else "right" for i in range(len(cells))]
    colours: list[Any] = [look.INK] * len(columns)
    if swatches:
        cells = [["", *("━━" for _ in swatches)], *cells]
        letters, aligned, colours = [5, *letters], ["right", *aligned], [swatches, *colours]
    plain = {
        "align": aligned,
        "fill": {"color": "white"},
        "line": {"color": look.GRID, "width": 0},
        "height": PIXEL * part.row,
    }
    head = [f"<b>{name}</b>" for name, *_ in cells]
    body = [column for _, *column in cells]
    return _trace(
        "table",
        domain=domain,
        columnwidth=letters,
        header={"values": head, "font": {"size": size, "color": look.MUTED}, **plain},
        cells={"values": body, "font": {"size": size, "color": colours}, **plain},
    )


def parallel_trace(part: Parallel, domain: Any) -> Trace:
    """Parallel axes with a line for each value."""
    shading, count = part.shading, len(part.axes)
    letters = min(int(_PAGE_WIDTH / count / _LETTER), _LONGEST)
    return _trace(
        "parcoords",
        domain=domain,
        line={
            "color": np.where(np.isnan(shading.values), shading.ends[0], shading.values),
            "coloraxis": "coloraxis",
        },
        dimensions=[
            {
                "label": html.escape(short(scale.label, letters)),
                "values": values,
                "range": list(scale.ends),
                "tickvals": [place for place, _ in scale.labelled],
                "ticktext": [text for _, text in scale.labelled],  # no markup here
            }
            for scale, values in part.axes
        ],
        labelfont={"size": 14, "color": look.INK},
        tickfont={"size": 12, "color": look.INK},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
    )
