"""Draws figures as interactive pages by plotly's Python API; pages of a run share one plotly.js.

A page has the layout of the PNG, stretched to the size of the window, with smaller letters.
"""

import base64
import html
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure import look
from slm_lab.analysis.figure.layout import LETTER, short
from slm_lab.analysis.figure.png import groups
from slm_lab.analysis.figure.traces import PIXEL, panel_traces, parallel_trace, table_trace

_FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"
_SMALLEST = 7  # letters
_TOP = 120  # pixels above the plot
_LETTER, _SAMPLE, _ROOM, _ROW = 9.5, 60, 1000, 27  # pixels of the legend, to guess its rows
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}
_LEGEND = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
_NOTE = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
_COLOUR_BAR = {"orientation": "h", "thickness": 14, "len": 0.24, "x": 1.0, "xanchor": "right"}

# A panel reports the pointer once for the pointer itself, and once more for each call below,
# which has no event of the mouse.
_HOVER_ALL = """
const graph = document.getElementById("graph");
const panels = graph._fullLayout._subplots.cartesian;
graph.on("plotly_hover", seen => {
  if (seen.event) Plotly.Fx.hover(graph, {xval: seen.xvals[0]}, panels);
});
graph.on("plotly_unhover", () => Plotly.Fx.unhover(graph));
"""


# Shown in place of the graph if the page was copied or mailed without its script.
_MISSING = (
    "This page needs {url}, beside it as in the data folder of its run. "
    "slm-lab plot RUN --standalone makes a page that needs nothing."
)


def render_html(figure: fig.Figure, plotly_js: str | None) -> bytes:
    """The figure as a page. It loads plotly.js from `plotly_js`, a URL relative to the page, or
    contains it. It is as high as the window, and scrolls below the height at which it could still
    be read."""
    page = _Page(figure)
    text: str = page.graph().to_html(
        config=_CONFIG,
        include_plotlyjs=plotly_js or True,
        post_script=_HOVER_ALL if figure.linked else None,
        default_height="100vh",
        div_id="graph",
    )
    least = round(PIXEL * figure.inner.height) + _TOP + page.foot
    style = f"body{{margin:0}}#graph{{min-height:{least}px}}"
    head = f"<title>{html.escape(page.title)}</title><style>{style}</style></head>"
    text = text.replace("</head>", head, 1)
    if plotly_js is not None:
        missing = _MISSING.format(url=plotly_js)
        message = f"onerror=\"document.body.textContent='{missing}'\""
        text = text.replace(f'src="{plotly_js}"', f'src="{plotly_js}" {message}', 1)
    return text.encode()


def plotly_figure(figure: fig.Figure) -> Any:
    """The figure as a `plotly.graph_objects.Figure`."""
    return _Page(figure).graph()


def plotly_content(figure: fig.Figure) -> dict[str, Any]:
    """The traces ("data") and the layout of the figure, which plotly has not validated."""
    return _Page(figure).content()


@final
class _Page:
    """The traces and the layout of a figure."""

    def __init__(self, figure: fig.Figure) -> None:
        self._figure = figure
        self._inner = figure.inner
        self._letters = round(0.75 * figure.letters)
        self._traces: list[Any] = []
        self._notes: list[dict[str, Any]] = []
        self._axes: dict[str, dict[str, Any]] = {}
        self._count = 0
        self._links: dict[str, str] = {}
        for part in figure.parts:
            match part:
                case fig.Panel():
                    self._add_panel(part)
                case fig.Table():
                    self._traces.append(table_trace(part, self._domain(part.box)))
                case fig.Parallel():
                    self._traces.append(parallel_trace(part, self._domain(part.box)))
                case fig.Words():
                    self._add_words(part)

    @property
    def title(self) -> str:
        """Of the window."""
        first = next(iter(self._figure.panels), None)
        if self._figure.legend is None or first is None:
            return self._figure.title
        return f"{self._figure.title}: {first.y.label} / {first.x.label}"

    @property
    def foot(self) -> int:
        """Pixels below the plot."""
        if self._figure.legend is None:
            return round(PIXEL * self._inner.bottom)
        labels = [curve.label for curve in fig.in_legend_order(self._figure.curves)]
        widest = max(map(len, labels), default=0)
        columns = max(int(_ROOM / (_SAMPLE + _LETTER * widest)), 1)  # all as wide as the widest
        return 92 + _ROW * -(-len(labels) // columns)

    def graph(self) -> Any:
        """The plotly figure."""
        from plotly.graph_objects import Figure as Graph

        return Graph(self.content())

    def content(self) -> dict[str, Any]:
        """Its traces and its layout."""
        figure, inner = self._figure, self._inner
        right = round(PIXEL * (figure.width - inner.right))
        layout: dict[str, Any] = {
            **self._axes,
            "annotations": self._notes,
            "template": "none",
            "title": {
                "text": f"<b>{html.escape(figure.title)}</b>",
                "font": {"size": 23},
                "x": 0.02,
                "xanchor": "left",
                "subtitle": {
                    "text": html.escape(figure.subtitle),
                    "font": {"size": 17, "color": look.MUTED},
                },
            },
            "font": {"family": _FONT, "size": 17, "color": look.INK},
            "margin": {"l": round(PIXEL * inner.left), "r": right, "t": _TOP, "b": self.foot},
            "hovermode": "x unified" if figure.legend else "x" if figure.linked else "closest",
            "showlegend": figure.legend is not None,
            "legend": {**_LEGEND, "font": {"size": 16}, "traceorder": "normal"},
        }
        if figure.shading is not None:
            layout["coloraxis"] = _colours(figure.shading)
        return {"data": self._traces, "layout": layout}

    def _across(self, x: float) -> float:
        """A place as a share of the plot's width."""
        return (x - self._inner.left) / self._inner.width

    def _up(self, y: float) -> float:
        return (y - self._inner.bottom) / self._inner.height

    def _domain(self, box: fig.Box) -> dict[str, list[float]]:
        return {
            "x": [self._across(box.left), self._across(box.right)],
            "y": [self._up(box.bottom), self._up(box.top)],
        }

    def _note(self, markup: str, x: float, y: float, **options: Any) -> None:
        """Markup at a place; without options its lower left corner. With `xref` or `yref` x or y
        is a place on that axis."""
        size, colour = options.pop("size", self._letters), options.pop("colour", look.INK)
        note = {**_NOTE, "text": markup, "showarrow": False, "align": "left", **options}
        note["x"] = x if "xref" in options else self._across(x)
        note["y"] = y if "yref" in options else self._up(y)
        self._notes.append({**note, "font": {"size": size, "color": colour}})

    def _add_words(self, words: fig.Words) -> None:
        text = html.escape(words.text)
        if words.hint:
            text += f"   {_small(html.escape(words.hint), look.MUTED, 14)}"
        markup, colour = (f"<b>{text}</b>", look.INK) if words.heading else (text, look.MUTED)
        size = round(0.8 * words.size)
        self._note(markup, words.left, words.bottom, size=size, colour=colour)

    def _add_panel(self, panel: fig.Panel) -> None:
        box, domain = panel.box, self._domain(panel.box)
        self._count += 1
        number = str(self._count) if self._count > 1 else ""
        x, y = f"x{number}", f"y{number}"
        x_axis, y_axis = (self._axis(scale, panel.is_empty) for scale in (panel.x, panel.y))
        x_axis |= {"domain": domain["x"], "anchor": y, "showline": True, "linecolor": look.MUTED}
        for axis, scale, name in ((x_axis, panel.x, x), (y_axis, panel.y, y)):
            if scale.link and (first := self._links.setdefault(scale.link, name)) != name:
                axis["matches"] = first
        if panel.bars and not panel.horizontal:
            x_axis["showgrid"] = False
        elif panel.x.label:
            size = self._letters
            title = {"text": html.escape(panel.x.label), "standoff": 10, "font": {"size": size}}
            x_axis["title"] = title
        self._axes[f"xaxis{number}"] = x_axis
        self._axes[f"yaxis{number}"] = {**y_axis, "domain": domain["y"], "anchor": x}
        self._add_head(panel)
        if panel.y.label:
            self._note(
                html.escape(panel.y.label), box.left, box.bottom + box.height / 2, textangle=-90,
                xshift=-4.6 * self._letters, xanchor="center", yanchor="middle",
            )  # fmt: skip
        traces = panel_traces(panel, len(self._figure.panels))
        if panel.bars:
            self._add_bar_notes(panel, x, y)
        if panel.is_empty:
            self._note(
                panel.note, box.left + box.width / 2, box.bottom + box.height / 2,
                size=20, colour=look.MUTED, xanchor="center", yanchor="middle",
            )  # fmt: skip
        self._traces += [{**trace, "xaxis": x, "yaxis": y} for trace in traces]

    def _add_head(self, panel: fig.Panel) -> None:
        """Title, keys and hint above a panel."""
        words = f"<b>{html.escape(short(panel.title, 60))}</b>" if panel.title else ""
        if panel.keys:
            count = 1.2 * len(panel.title) * (not panel.bars)
            count += sum(len(text) + 2 for _, text in panel.keys)
            size = _fitting(count, panel.box.width, 13)
            keys = [_small(html.escape(text), colour, size) for colour, text in panel.keys]
            words += ("<br>" if panel.bars and words else "  ") + "  ".join(keys)
        if panel.hint:
            words += "<br>" + _small(html.escape(panel.hint), look.MUTED, 12)
        if words:
            self._note(words, panel.box.left, panel.box.top, size=self._letters + 1, yshift=3)

    def _axis(self, scale: fig.Scale, empty: bool) -> dict[str, Any]:
        largest = max(map(abs, scale.ends))
        axis: dict[str, Any] = {
            "range": list(scale.ends),
            "gridcolor": look.GRID,
            "zeroline": False,
            "exponentformat": "e",
            "hoverformat": ",.7~r",
            "nticks": scale.most,
            "tickfont": {"size": self._letters},
            "ticklabelstandoff": 4,
            "showticklabels": scale.numbers and not empty,
            "showgrid": not empty,
            "tickangle": -90 if scale.upwards else 0,
        }
        if scale.ticks:
            places, texts = zip(*scale.ticks, strict=True)
            axis["tickvals"] = [10.0**place for place in places] if scale.log else list(places)
            axis["ticktext"] = [html.escape(text) for text in texts]
        elif look.BIG <= largest < look.HUGE:
            axis["tickformat"] = "~s"  # 50k; small numbers it would write as 500m
        elif scale.whole:
            axis["tickformat"] = "d"
        if scale.log:
            axis["type"] = "log"
        return axis

    def _add_bar_notes(self, panel: fig.Panel, x: str, y: str) -> None:
        """Texts of missing and of horizontal bars, the names of groups, and the label below."""
        for bar in panel.bars:
            text, colour = html.escape(bar.text), look.MUTED if bar.height is None else look.INK
            place = {"colour": colour, "xref": x, "yref": y}
            if panel.horizontal:
                end = max(bar.height or 0.0, bar.mark)
                self._note(text, end, bar.place, xshift=6, yanchor="middle", **place)
            elif bar.height is None:
                self._note(text, bar.place, 0, xanchor="center", textangle=-90, **place)
        if panel.horizontal:
            return
        for group, places in groups(panel.bars).items():
            middle, (low, high) = (places[0] + places[-1]) / 2, panel.x.ends
            room = panel.box.width * (len(places) + 0.4) / (high - low)
            size = _fitting(len(group), room, self._letters + 1)
            self._note(f"<b>{html.escape(group)}</b>", middle, panel.box.bottom, xref=x, size=size,
                       yshift=-26, xanchor="center", yanchor="top")  # fmt: skip
        label = html.escape(panel.x.label)
        self._note(label, panel.box.left, panel.box.bottom, size=13, colour=look.MUTED,
                   xshift=-6, yshift=-8, xanchor="right", yanchor="top")  # fmt: skip


def _fitting(count: float, room: float, most: int) -> int:
    """The size at which so many letters have room in pixels of the PNG."""
    return max(min(most, int(PIXEL * room / (LETTER * max(count, 1)))), _SMALLEST)


def _small(markup: str, colour: str, size: int) -> str:
    return f'<span style="color:{colour};font-size:{size}px;font-weight:normal">{markup}</span>'


def _colours(shading: look.Shading) -> dict[str, Any]:
    """The scale of colours in a layout."""
    return {
        "colorscale": [[i / (len(look.SHADES) - 1), s] for i, s in enumerate(look.SHADES)],
        "cmin": shading.ends[0],
        "cmax": shading.ends[1],
        "colorbar": {
            **_COLOUR_BAR,
            "y": 1.0,
            "yanchor": "bottom",
            "nticks": 5,
            "tickfont": {"size": 12},
            "title": {"text": html.escape(shading.name), "side": "top", "font": {"size": 14}},
        },
    }


def packed(value: Any) -> Any:
    """Arrays of numbers as plotly.js reads them from a few bytes, in place of long texts."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        array: dict[str, Any] = {"dtype": "f8"}
        array["bdata"] = base64.b64encode(value.astype("<f8").tobytes()).decode()
        if value.ndim > 1:
            array["shape"] = ", ".join(map(str, value.shape))
        return array
    if isinstance(value, Mapping):
        return {key: packed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [packed(each) for each in value]
    return value
