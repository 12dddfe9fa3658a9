"""Plotly's traces of what a figure shows."""

import html
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure import look
from slm_lab.core.types import FloatArray

Trace: TypeAlias = dict[str, Any]
"""A trace of plotly, which validates it once, in a figure: its own classes do so three
times."""

PIXEL = 0.77
"""Pixels of a page for a pixel of the PNG."""
DASH = "6px,3px"

_LINE_WIDTH = {"solid": 2.5, "dashed": 2.0, "faint": 1.0}
_PAGE_WIDTH, _LETTER, _LONGEST = 1200, 8.5, 32  # pixels, and letters of a name
_MANY = 4000  # dots, from which on a browser draws them by WebGL
_DOT, _SMALL_DOT = 9, 6


def _trace(kind: str, **options: Any) -> Trace:
    return {"type": kind, **options}


def panel_traces(panel: fig.Panel, panels: int, colours: Sequence[str]) -> list[Trace]:
    """Bands, lines, bars and dots of one of so many panels, in the order of drawing;
    `colours` are those of the dots."""
    if panel.is_empty:
        empty = _trace("scatter", x=[None], y=[None], showlegend=False)
        return [empty]  # axes without a trace are not drawn
    name, traces = "", list[Trace]()
    for curve in panel.curves:
        # a curve without a label belongs to the one before it
        name = curve.label or name
        traces += _curve(
            curve.mapped(lambda y: 10.0**y) if panel.y.log else curve, name
        )
    traces.sort(key=lambda trace: "fill" not in trace)  # bands first
    if panel.bars:
        traces += _bars(panel.bars, panel.horizontal)
    if panel.base is not None:
        line = {"color": look.MUTED, "width": 1.5, "dash": DASH}
        base = _trace(
            "scatter", x=panel.x.ends, y=[panel.base] * 2, mode="lines", line=line
        )
        traces.append({**base, "hoverinfo": "skip"})
    if panel.dots is not None:
        traces.append(
            _dots(panel.dots, panel.x, colours, len(colours) * panels > _MANY)
        )
    return traces


def _curve(curve: fig.Curve, name: str) -> list[Trace]:
    known = np.isfinite(curve.mean)
    alone = any(stretch.stop - stretch.start == 1 for stretch in fig.runs(known))
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
        legendrank=1 + curve.rank,
        **shared,
    )
    if curve.style == "faint":
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


def _outline(
    x: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The closed line around each unbroken stretch of a band; NaN lifts the pen."""
    gap, parts = np.full(1, np.nan), fig.runs(np.isfinite(low))
    xs = [each for part in parts for each in (x[part], x[part][::-1], gap)]
    ys = [each for part in parts for each in (high[part], low[part][::-1], gap)]
    return np.concatenate([gap[:0], *xs]), np.concatenate([gap[:0], *ys])


def _bars(bars: Sequence[fig.Bar], flat: bool) -> list[Trace]:
    """The bars, and a mark across each place; both horizontal if `flat`."""
    places, heights = [bar.place for bar in bars], [bar.height or 0.0 for bar in bars]
    half = 0.6 * fig.BAR_WIDTH
    ends = [end for place in places for end in (place - half, place + half, None)]
    marks = [mark for bar in bars for mark in (bar.mark, bar.mark, None)]
    texts = [html.escape(bar.text) for bar in bars]
    spread = {
        "array": [bar.high - height for bar, height in zip(bars, heights, strict=True)],
        "arrayminus": [
            height - bar.low for bar, height in zip(bars, heights, strict=True)
        ],
        "symmetric": False,
        "color": look.INK,
        "thickness": 1.5,
        "width": 0,
    }
    upright = {
        "error_y": spread,
        "text": texts,
        "textposition": ["outside" if bar.height is None else "inside" for bar in bars],
        "insidetextanchor": "start",
    }
    traces = [
        _trace(
            "bar",
            **_swapped(flat, places, heights),
            orientation="h" if flat else "v",
            width=fig.BAR_WIDTH,
            marker={
                "color": [bar.fill for bar in bars],
                "line": {"color": [bar.ink for bar in bars], "width": 2},
            },
            customdata=[bar.hover for bar in bars],
            hovertemplate="%{customdata}<extra></extra>",
            **({} if flat else upright),
        ),
        _trace(
            "scatter",
            **_swapped(flat, ends, marks),
            mode="lines",
            line={"color": look.INK, "width": 3},
            hoverinfo="skip",
        ),
    ]
    if flat:
        farthest = np.nanmax([heights, [bar.mark for bar in bars]], axis=0)
        text = {"text": [f"  {each}" for each in texts], "textposition": "middle right"}
        font = {"textfont_size": 13, "hoverinfo": "skip"}
        traces.append(
            _trace("scatter", x=farthest, y=places, mode="text", **text, **font)
        )
    return traces


def _swapped(
    flat: bool, places: Sequence[Any], heights: Sequence[Any]
) -> dict[str, Any]:
    return dict(zip("yx" if flat else "xy", (places, heights), strict=True))


def _dots(dots: fig.Dots, x: fig.Scale, colours: Sequence[str], many: bool) -> Trace:
    return _trace(
        "scattergl" if many else "scatter",
        x=10.0**dots.x if x.log else dots.x,
        y=dots.y,
        text=dots.hover,
        mode="markers",
        marker={
            "color": colours,
            "symbol": np.where(dots.filled, "circle", "circle-open").tolist(),
            "size": _SMALL_DOT if many else _DOT,
            "line": {"width": np.where(dots.filled, 0, 1.5)},
        },
        hovertemplate=f"%{{text}}<br>{dots.name} %{{y:.4~g}}<extra></extra>",
    )


def colours_of(shading: look.Shading | None) -> list[str]:
    """(n,): the colours of the dots."""
    from plotly.colors import sample_colorscale

    if shading is None:
        return []
    low, high = shading.ends
    shares = (shading.values - low) / (high - low)
    known = ~np.isnan(shares)
    sampled = iter(sample_colorscale(look.SHADES, shares[known]))
    return [next(sampled) if is_known else look.MISSING_COLOUR for is_known in known]


def table_trace(part: fig.Table, domain: Any) -> Trace:
    """The cells; the colours of the rows before them."""
    letters = part.letters
    size = min(14.0, 14 * _PAGE_WIDTH / (_LETTER * sum(letters)))
    columns = [
        list(map(html.escape, column)) for column in zip(*part.cells, strict=True)
    ]
    aligned = ["left" if i in part.left else "right" for i in range(len(columns))]
    colours: list[Any] = [look.INK] * len(columns)
    if part.swatches:
        colours[0] = part.swatches
    plain = {
        "align": aligned,
        "fill": {"color": "white"},
        "line": {"color": look.GRID, "width": 0},
        "height": PIXEL * part.box.height / len(part.cells),
    }
    head = [f"<b>{name}</b>" for name, *_ in columns]
    body = [column for _, *column in columns]
    return _trace(
        "table",
        domain=domain,
        columnwidth=letters,
        header={"values": head, "font": {"size": size, "color": look.MUTED}, **plain},
        cells={"values": body, "font": {"size": size, "color": colours}, **plain},
    )


def number_format(scale: fig.Scale) -> str | None:
    """Plotly's format of the numbers on an axis; None: its own choice."""
    largest = max(map(abs, scale.ends))
    if look.BIG <= largest < look.HUGE:
        return "~s"  # 50k; small numbers it would write as 500m
    return "d" if scale.whole else None


def parallel_trace(part: fig.Parallel, domain: Any) -> Trace:
    """Parallel axes with a line for each value."""
    shading, letters = part.shading, int(_PAGE_WIDTH / len(part.axes) / _LETTER)
    dimensions = []
    for scale, values in part.axes:
        label = html.escape(fig.short(scale.label, min(letters, _LONGEST)))
        axis = {"label": label, "values": values, "range": list(scale.ends)}
        if scale.ticks:
            # plotly ends axes at ticks
            named = dict.fromkeys(scale.ends, "") | dict(scale.ticks)
            axis |= {
                "tickvals": sorted(named),
                "ticktext": [named[k] for k in sorted(named)],
            }
        dimensions.append({**axis, "tickformat": number_format(scale)})
    colours = np.where(np.isnan(shading.values), shading.ends[0], shading.values)
    return _trace(
        "parcoords",
        domain=domain,
        line={"color": colours, "coloraxis": "coloraxis"},
        dimensions=dimensions,
        labelfont={"size": 14, "color": look.INK},
        tickfont={"size": 12, "color": look.INK},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
    )
