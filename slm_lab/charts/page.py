"""Draws charts as interactive pages by plotly; pages of a run share one plotly.js.

Words and tables of a page are HTML, panels are a graph of plotly."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from slm_lab.charts import look
from slm_lab.charts.chart import (
    BAR_WIDTH,
    Chart,
    Curve,
    Dots,
    Panel,
    Parallel,
    Scale,
    Table,
    alone,
    bar_places,
    group_places,
    limits,
)
from slm_lab.core.text import printable
from slm_lab.core.types import FloatArray

Trace: TypeAlias = dict[str, Any]
"""A trace of plotly."""

_FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"
_AXIS = {
    "gridcolor": look.GRID,
    "zeroline": False,
    "automargin": True,
    "exponentformat": "e",
    "hoverformat": ",.7~r",
    "ticklabelstandoff": 4,
    "title": {"standoff": 8, "font": {"size": 14}},
}
_TEMPLATE = {
    "layout": {
        "font": {"family": _FONT, "size": 14, "color": look.TEXT},
        "title": {"x": 0.02, "xanchor": "left"},
        "xaxis": {**_AXIS, "showline": True, "linecolor": look.MUTED},
        "yaxis": _AXIS,
        "margin": {"l": 60, "r": 30, "t": 70, "b": 50},
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0.0,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"namelength": -1},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "annotationdefaults": {"showarrow": False, "align": "left"},
    }
}
_COLOUR_BAR = {
    "orientation": "h",
    "thickness": 12,
    "len": 0.25,
    "x": 0.0,
    "xanchor": "left",
    "yref": "container",
    "y": 1.0,
    "yanchor": "top",
    "nticks": 5,
}
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}
_LONELY = 7  # pixels of a point without a neighbour
_ROWS = {1: 460, 2: 320}  # pixels of a row, by the number of rows
_LOW_ROW = 210
_BAR_ROW = 40  # pixels of a horizontal bar
_MANY_DOTS = 4000  # from which on a browser draws them by WebGL

# A panel reports the pointer once for the pointer itself. It reports it once more for
# each call below, which has no event of the mouse.
_HOVER_ALL = """
const graph = document.getElementById("{plot_id}");
const panels = graph._fullLayout._subplots.cartesian;
graph.on("plotly_hover", seen => {
  if (seen.event) Plotly.Fx.hover(graph, {xval: seen.xvals[0]}, panels);
});
graph.on("plotly_unhover", () => Plotly.Fx.unhover(graph));
"""

_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>{description}
<style>
body {{ margin: 0; padding: 12px 20px; font-family: {font}; color: {text}; }}
h1 {{ font-size: 22px; margin: 8px 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 18px; margin: 36px 0 8px; }}
p {{ color: {muted}; margin: 6px 0; }}
.scroll {{ overflow-x: auto; }}
.wide {{ min-width: 900px; }}
.single {{ height: calc(100vh - 130px); min-height: 400px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; }}
th, td {{ padding: 6px 10px; text-align: right; white-space: nowrap; }}
th {{ color: {muted}; }}
tr {{ border-bottom: 1px solid {grid}; }}
.words {{ text-align: left; }}
</style>{script}</head><body>
{body}
</body></html>
"""

# Shown in place of the graph if the page was copied or mailed without its script.
_MISSING = (
    "This page needs {url}, beside it as in the data folder of its run. "
    "slm-lab plot RUN --standalone makes a page that needs nothing."
)


def render_page(charts: Sequence[Chart], plotly_js: str | None) -> bytes:
    """Charts below each other as a page, the first under its main heading. It loads
    plotly.js from `plotly_js`, a URL relative to the page, or contains it."""
    first = charts[0]
    description = ""
    if first.about:
        description = f'<meta name="description" content="{markup(first.about)}">'
    title = first.title
    if first.legend and first.panels:
        panel = first.panels[0]
        title = f"{title}: {panel.y.label} / {panel.x.label}"
    page = _PAGE.format(
        title=markup(title),
        description=description,
        font=_FONT,
        text=look.TEXT,
        muted=look.MUTED,
        grid=look.GRID,
        script=_script(plotly_js),
        body="\n".join(_section(chart, i) for i, chart in enumerate(charts)),
    )
    return page.encode()


def markup(text: str) -> str:
    """The text as HTML, with control characters as a terminal shows them."""
    return html.escape(printable(text))


def _script(plotly_js: str | None) -> str:
    from plotly.offline import get_plotlyjs

    if plotly_js is None:
        return f"<script>{get_plotlyjs()}</script>"
    missing = _MISSING.format(url=plotly_js)
    message = f"document.body.textContent='{missing}'"
    return f'<script src="{plotly_js}" onerror="{message}"></script>'


def _section(chart: Chart, number: int) -> str:
    """A chart under its heading."""
    level = 2 if number else 1
    parts = [f"<h{level}>{markup(chart.title)}</h{level}>"]
    parts.append(f"<p>{markup(chart.subtitle)}</p>")
    if chart.rows:
        parts.append(_graph_html(chart, f"graph{number}"))
    if chart.table is not None:
        parts.append(_table_html(chart.table))
    parts += [f"<p>{markup(note)}</p>" for note in chart.notes]
    return "\n".join(parts)


def _graph_html(chart: Chart, name: str) -> str:
    import plotly.io

    kind = "wide"
    height = f"{_height(chart)}px"
    if chart.panels and len(chart.places) == 1 and not chart.panels[0].horizontal:
        kind = "single"
        height = "100%"
    graph = content(chart)
    del graph["layout"]["title"]
    drawn: str = plotly.io.to_html(
        graph,
        config=_CONFIG,
        include_plotlyjs=False,
        full_html=False,
        post_script=_HOVER_ALL if chart.linked else None,
        default_height=height,
        div_id=name,
        validate=False,
    )
    return f'<div class="scroll"><div class="{kind}">{drawn}</div></div>'


def _height(chart: Chart) -> int:
    """The height of its graph, in pixels."""
    rows = len(chart.rows)
    panels = chart.panels
    if len(panels) == 1 and panels[0].horizontal:
        return 130 + _BAR_ROW * len(panels[0].bars)
    return 130 + rows * _ROWS.get(rows, _LOW_ROW)


def _table_html(table: Table) -> str:
    """The cells; the colours of the rows before them."""
    lines = []
    for number, row in enumerate(table.cells):
        kind = "td" if number else "th"
        cells = []
        for column, text in enumerate(row):
            style = ""
            if number and table.inks and column == 0:
                ink = table.inks[number - 1]
                style = f' style="color:{look.colour(*ink)}"'
            align = ' class="words"' if column in table.left else ""
            cells.append(f"<{kind}{align}{style}>{markup(text)}</{kind}>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def graph(chart: Chart, layout: Mapping[str, Any] | None = None) -> Any:
    """The panels under their title, as a `plotly.graph_objects.Figure`; `layout`
    replaces parts of plotly's layout."""
    from plotly.graph_objects import Figure

    drawn = content(chart)
    drawn["layout"] |= layout or {}
    return Figure(drawn)


def content(chart: Chart) -> dict[str, Any]:
    """The traces ("data") and the layout of a chart. plotly has not validated them,
    because its own classes take several times as long."""
    subtitle = {"text": markup(chart.subtitle), "font": {"color": look.MUTED}}
    hover = "closest"
    if chart.legend:
        hover = "x unified"
    elif chart.linked:
        hover = "x"
    layout: dict[str, Any] = {
        **_cells(chart),
        "template": _TEMPLATE,
        "title": {"text": f"<b>{markup(chart.title)}</b>", "subtitle": subtitle},
        "hovermode": hover,
        "showlegend": chart.legend,
        "annotations": [],
        "shapes": [],
    }
    if chart.shading is not None:
        low, high = limits([chart.shading.values], 0.0)
        title = {"text": markup(chart.shading.name), "side": "right"}
        layout["margin"] = {"t": 120}
        layout["coloraxis"] = {
            "colorscale": "Viridis",
            "reversescale": True,
            "cmin": low - look.MARGIN_BELOW * (high - low),
            "cmax": high,
            "colorbar": {**_COLOUR_BAR, "title": title},
        }
    traces: list[Trace] = []
    links: dict[str, str] = {}
    number = 0
    for place in chart.places:
        if isinstance(place.part, Parallel):
            traces.append(_parallel(place.part, chart))
            continue
        number += 1
        suffix = ""
        if number > 1:
            suffix = str(number)
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        traces += [{**trace, **axes} for trace in panel_traces(place.part, chart)]
        _add_axes(layout, place.part, suffix, links)
        layout["annotations"] += _words(place.part, suffix)
    return {"data": traces, "layout": layout}


def _cells(chart: Chart) -> dict[str, Any]:
    """The axes of each panel, with their places."""
    from plotly.subplots import make_subplots

    specs: list[list[Any]] = [[None] * chart.columns for _ in chart.rows]
    for place in chart.places:
        kind = "domain" if isinstance(place.part, Parallel) else "xy"
        spans = {"rowspan": place.height, "colspan": place.width}
        specs[place.row][place.column] = {"type": kind, **spans}
    gap = 0.15 if chart.panels and not chart.panels[0].x.label else 0.3
    empty = make_subplots(
        rows=len(chart.rows),
        cols=chart.columns,
        specs=specs,
        horizontal_spacing=0.2 / chart.columns,
        vertical_spacing=gap / len(chart.rows),
    )
    cells: dict[str, Any] = empty.layout.to_plotly_json()
    del cells["template"]
    return cells


def _add_axes(
    layout: dict[str, Any], panel: Panel, suffix: str, links: dict[str, str]
) -> None:
    """Describes the axes of a panel. `links` has the first axis of each link."""
    for letter, scale in (("x", panel.x), ("y", panel.y)):
        axis = layout[f"{letter}axis{suffix}"]
        name = f"{letter}{suffix}"
        axis |= _axis(scale, panel.is_empty)
        if panel.bars and panel.horizontal is (letter == "y"):
            axis |= _bar_axis(panel, scale.label)
        if scale.link and links.setdefault(scale.link, name) != name:
            axis["matches"] = links[scale.link]
    if panel.base is not None:
        line = {"color": look.MUTED, "width": 1.5, "dash": "dash"}
        ends = {"x0": 0, "x1": 1, "xref": f"x{suffix} domain"}
        heights = {"y0": panel.base, "y1": panel.base, "yref": f"y{suffix}"}
        layout["shapes"].append({"type": "line", "line": line, **ends, **heights})


def _bar_axis(panel: Panel, label: str) -> dict[str, Any]:
    """The axis along which bars stand, upright or from the top down."""
    places = bar_places(panel.bars).tolist()
    ends = [-1.0, places[-1] + 1.0]
    if panel.horizontal:
        ends.reverse()
    return {
        "range": ends,
        "tickvals": places,
        "ticktext": [markup(bar.label) for bar in panel.bars],
        "showgrid": False,
        "title": {"text": markup(label), "standoff": 40},
    }


def _words(panel: Panel, suffix: str) -> list[dict[str, Any]]:
    """Title and hint above a panel, the note in an empty one."""
    refs = {"xref": f"x{suffix} domain", "yref": f"y{suffix} domain"}
    lines = []
    if panel.title:
        lines.append(f"<b>{markup(panel.title)}</b>")
    if panel.hint:
        style = f"font-size:12px;color:{look.MUTED}"
        lines.append(f'<span style="{style}">{markup(panel.hint)}</span>')
    words = []
    if lines:
        above = {"x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom"}
        words.append({"text": "<br>".join(lines), **above, **refs})
    if panel.is_empty:
        words.append({"text": markup(panel.note), "x": 0.5, "y": 0.5, **refs})
    for group, place in group_places(panel.bars).items():
        name = markup(group).replace("_", "_<br>")
        below = {"x": place, "y": 0, "yshift": -26, "yanchor": "top", "align": "center"}
        refs = {"xref": f"x{suffix}", "yref": f"y{suffix} domain"}
        words.append({"text": f"<b>{name}</b>", **below, **refs})
    return words


def _axis(scale: Scale, is_empty: bool) -> dict[str, Any]:
    ends = list(scale.ends)
    axis: dict[str, Any] = {
        "title": {"text": markup(scale.label)},
        "range": ends,
        "tickformat": _number_format(scale),
        "showticklabels": scale.numbers and not is_empty,
        "showgrid": not is_empty,
    }
    if scale.categories:
        axis["tickvals"] = list(range(len(scale.categories)))
        axis["ticktext"] = list(map(markup, scale.categories))
    if scale.log:
        axis |= {"type": "log", "range": np.log10(ends).tolist(), "tickformat": None}
    return axis


def _number_format(scale: Scale) -> str | None:
    """Plotly's format of the numbers on an axis; None: its own choice."""
    largest = max(map(abs, scale.ends))
    if look.BIG <= largest < look.HUGE:
        return "~s"  # 50k; small numbers it would write as 500m
    if scale.whole:
        return "d"
    return None


def panel_traces(panel: Panel, chart: Chart) -> list[Trace]:
    """Bands, lines, bars and dots of a panel, in the order of drawing."""
    if panel.is_empty:
        # axes without a trace are not drawn
        return [{"type": "scatter", "x": [None], "y": [None], "showlegend": False}]
    name = ""
    named = set(map(id, chart.named))
    bands = []
    traces: list[Trace] = []
    for curve in panel.curves:
        name = curve.label or name
        group = {"name": markup(name), "legendgroup": name}
        if curve.band is not None:
            bands.append({**_band(curve), **group})
        line = _line(curve, bool(name), in_legend=id(curve) in named)
        traces.append({**line, **group})
    traces = [*bands, *traces]
    if panel.bars:
        traces += _bars(panel)
    if panel.dots is not None:
        count = len(panel.dots.x) * len(chart.panels)
        traces.append(_dots(panel.dots, chart, count > _MANY_DOTS))
    return traces


def _line(curve: Curve, is_named: bool, in_legend: bool) -> Trace:
    stroke = look.STROKES[curve.style]
    line: Trace = {
        "type": "scatter",
        "x": curve.x,
        "y": curve.mean,
        "mode": "lines",
        "line": {
            "color": look.colour(*curve.ink),
            "width": stroke.width,
            "dash": stroke.dash,
        },
        "opacity": stroke.opacity,
        "showlegend": in_legend,
        "legendrank": stroke.rank,
    }
    lonely = alone(curve.mean)
    if lonely:
        sizes = np.zeros(curve.mean.size)
        sizes[lonely] = _LONELY
        line |= {"mode": "lines+markers", "marker": {"size": sizes}}
    if curve.style == "faint":
        return {**line, "hoverinfo": "skip"}
    hover = "%{fullData.name}: %{y:.5~g}" if is_named else "%{y:.5~g}"
    if curve.band is not None:
        hover += "  [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]"
        line["customdata"] = np.column_stack(curve.band)
    return {**line, "hovertemplate": f"{hover}<extra></extra>"}


def _band(curve: Curve) -> Trace:
    """The closed line around each unbroken stretch of a band; NaN lifts the pen."""
    assert curve.band is not None
    low, high = curve.band
    gap = np.full(1, np.nan)
    xs: list[FloatArray] = [np.empty(0)]
    ys: list[FloatArray] = [np.empty(0)]
    known = np.flatnonzero(np.isfinite(low))
    for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        xs += [curve.x[part], curve.x[part][::-1], gap]
        ys += [high[part], low[part][::-1], gap]
    return {
        "type": "scatter",
        "x": np.concatenate(xs),
        "y": np.concatenate(ys),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": look.colour(*curve.ink),
        "opacity": look.BAND_OPACITY,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _bars(panel: Panel) -> list[Trace]:
    """The bars, and a mark across each; both horizontal if the panel is."""
    bars = panel.bars
    along, across = "yx"
    placing = {"orientation": "v", "textposition": "auto"}
    if panel.horizontal:
        along, across = "xy"
        placing = {"orientation": "h", "textposition": "outside"}
    heights = np.nan_to_num([bar.height for bar in bars])
    low, high = np.transpose([bar.interval for bar in bars])
    drawn: Trace = {
        "type": "bar",
        along: heights,
        across: bar_places(bars),
        **placing,
        "width": BAR_WIDTH,
        "text": [markup(bar.text) for bar in bars],
        "insidetextanchor": "start",
        "cliponaxis": False,
        "marker": {
            "color": [look.colour(*bar.fill) for bar in bars],
            "line": {"color": [look.colour(*bar.ink) for bar in bars], "width": 2},
        },
        "customdata": [markup(bar.hover).replace("\n", "<br>") for bar in bars],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    drawn[f"error_{along}"] = {
        "type": "data",
        "symmetric": False,
        "array": high - heights,
        "arrayminus": heights - low,
        "color": look.TEXT,
        "thickness": 1.5,
        "width": 0,
    }
    marks: Trace = {
        "type": "scatter",
        along: [bar.mark for bar in bars],
        across: bar_places(bars),
        "mode": "markers",
        "marker": {"opacity": 0},
        f"error_{across}": {
            "type": "constant",
            "value": 0.6 * BAR_WIDTH,
            "color": look.TEXT,
            "thickness": 3,
            "width": 0,
        },
        "hoverinfo": "skip",
    }
    return [drawn, marks]


def _dots(dots: Dots, chart: Chart, is_many: bool) -> Trace:
    assert chart.shading is not None
    kind = "scatter"
    size = 9
    if is_many:
        kind = "scattergl"
        size = 6
    return {
        "type": kind,
        "x": dots.x,
        "y": dots.y,
        "text": ["<br>".join(map(markup, lines)) for lines in dots.hover],
        "mode": "markers",
        "marker": {
            "color": chart.shading.values,
            "coloraxis": "coloraxis",
            "symbol": np.where(dots.filled, "circle", "circle-open").tolist(),
            "size": size,
        },
        "hovertemplate": f"%{{text}}<br>{markup(dots.name)} %{{y:.4~g}}<extra></extra>",
    }


def _parallel(part: Parallel, chart: Chart) -> Trace:
    """Parallel axes with a line for each value."""
    assert chart.shading is not None
    return {
        "type": "parcoords",
        "line": {"color": chart.shading.values, "coloraxis": "coloraxis"},
        "dimensions": [_dimension(scale, values) for scale, values in part.axes],
        "rangefont": {"size": 1, "color": "rgba(0,0,0,0)"},
    }


def _dimension(scale: Scale, values: FloatArray) -> dict[str, Any]:
    """Plotly has no logarithmic parallel axes: they show powers of ten."""
    low, high = scale.ends
    dimension: dict[str, Any] = {"label": markup(scale.label), "values": values}
    named = {float(i): markup(text) for i, text in enumerate(scale.categories)}
    if scale.log:
        low, high = np.log10(scale.ends).tolist()
        dimension["values"] = np.log10(values)
        whole = range(int(np.ceil(low)), int(np.floor(high)) + 1)
        named = {float(power): f"1e{power}" for power in whole}
        named = named or {low: f"{scale.ends[0]:.2g}", high: f"{scale.ends[1]:.2g}"}
    dimension["range"] = [low, high]
    dimension["tickformat"] = _number_format(scale)
    if named:
        # plotly ends axes at ticks
        ticks = {low: "", high: "", **named}
        dimension["tickvals"] = sorted(ticks)
        dimension["ticktext"] = [ticks[at] for at in sorted(ticks)]
    return dimension
