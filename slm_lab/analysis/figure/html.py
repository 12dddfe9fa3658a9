"""Draws figures as interactive pages by plotly's Python API; pages of a run share one
plotly.js.

A page has the layout of the PNG, stretched to the size of the window, with smaller
letters."""

import base64
import html
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure import look
from slm_lab.analysis.figure.traces import (
    PIXEL,
    colours_of,
    number_format,
    panel_traces,
    parallel_trace,
    table_trace,
)

_FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"
_SMALLEST = 7  # letters
_PANELS = 900  # pixels, below which a page of several panels scrolls sideways
_HEAD, _FOOT = 30, 58  # pixels above and below the plot, beside those of the PNG
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}
_LEGEND = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}
_NOTE = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
_COLOUR_BAR = {
    "orientation": "h",
    "thickness": 14,
    "len": 0.24,
    "x": 1.0,
    "xanchor": "right",
}

# A panel reports the pointer once for the pointer itself, and once more for each call
# below, which has no event of the mouse.
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
    """The figure as a page. It is as high as the window, and scrolls where it could not
    be read. It loads plotly.js from `plotly_js`, a URL relative to the page, or
    contains it."""
    page = Page(figure)
    text: str = page.graph().to_html(
        config=_CONFIG,
        include_plotlyjs=plotly_js or True,
        post_script=_HOVER_ALL if figure.linked else None,
        default_height="100vh",
        div_id="graph",
    )
    least = round(PIXEL * figure.inner.bottom) + _HEAD + page.foot
    wide = f"min-width:{_PANELS}px" if len(figure.parts) > 1 else ""
    style = f"body{{margin:0}}#graph{{min-height:{least}px;{wide}}}"
    about = f'<meta name="description" content="{html.escape(figure.about)}">' * bool(
        figure.about
    )
    head = (
        f"<title>{html.escape(page.title)}</title>{about}<style>{style}</style></head>"
    )
    text = text.replace("</head>", head, 1)
    if plotly_js is not None:
        missing = _MISSING.format(url=plotly_js)
        message = f"onerror=\"document.body.textContent='{missing}'\""
        text = text.replace(f'src="{plotly_js}"', f'src="{plotly_js}" {message}', 1)
    return text.encode()


@final
class Page:
    """A figure in the terms of plotly."""

    def __init__(self, figure: fig.Figure) -> None:
        self._figure, self._inner = figure, figure.inner
        self._letters = round(0.75 * figure.letters)
        self._colours = colours_of(figure.shading)
        self._traces: list[Any] = []
        self._notes: list[dict[str, Any]] = []
        self._axes: dict[str, dict[str, Any]] = {}
        self._links: dict[str, str] = {}
        for part in figure.parts:
            match part:
                case fig.Panel():
                    self._add_panel(part)
                case fig.Table():
                    self._traces.append(table_trace(part, self._domain(part.box)))
                case fig.Parallel():
                    self._traces.append(parallel_trace(part, self._domain(part.box)))
                case fig.TextLine():
                    self._add_text(part)

    @property
    def foot(self) -> int:
        """Pixels below the plot; labels and legends make room for more."""
        lines = [
            part.base for part in self._figure.parts if isinstance(part, fig.TextLine)
        ]
        return (
            round(PIXEL * (max([*lines, self._inner.bottom]) - self._inner.bottom))
            + _FOOT
        )

    @property
    def title(self) -> str:
        """Of the window."""
        first = next(iter(self._figure.panels), None)
        if not self._figure.legend or first is None:
            return self._figure.title
        return f"{self._figure.title}: {first.y.label} / {first.x.label}"

    def graph(self) -> Any:
        """The figure as a `plotly.graph_objects.Figure`."""
        from plotly.graph_objects import Figure as Graph

        return Graph(self.content())

    def content(self) -> dict[str, Any]:
        """The traces ("data") and the layout, which plotly has not validated."""
        figure, inner = self._figure, self._inner
        narrow = len(figure.parts) == 1  # on a phone, too; others scroll
        letters = min(23, max(13, 640 // max(len(figure.title), 1))) if narrow else 23
        left, top, right = (
            round(PIXEL * each)
            for each in (inner.left, inner.top, figure.width - inner.right)
        )
        layout: dict[str, Any] = {
            **self._axes,
            "annotations": self._notes,
            "template": "none",
            "title": {
                "text": f"<b>{html.escape(figure.title)}</b>",
                "font": {"size": letters},
                "x": 0.02,
                "xanchor": "left",
                "subtitle": {
                    "text": html.escape(figure.subtitle),
                    "font": {"size": min(letters, 17), "color": look.MUTED},
                },
            },
            "font": {"family": _FONT, "size": 17, "color": look.INK},
            "margin": {"l": left, "r": right, "t": top + _HEAD, "b": self.foot},
            "hovermode": "x unified"
            if figure.legend
            else "x"
            if figure.linked
            else "closest",
            "showlegend": figure.legend,
            "legend": {**_LEGEND, "font": {"size": 16}, "traceorder": "normal"},
        }
        if figure.shading is not None:
            layout["coloraxis"] = _colours(figure.shading)
        return {"data": self._traces, "layout": layout}

    def _across(self, x: float) -> float:
        return (x - self._inner.left) / self._inner.width

    def _up(self, y: float) -> float:
        return (self._inner.bottom - y) / self._inner.height

    def _domain(self, box: fig.Box) -> dict[str, list[float]]:
        return {
            "x": [self._across(box.left), self._across(box.right)],
            "y": [self._up(box.bottom), self._up(box.top)],
        }

    def _note(self, markup: str, x: float, y: float, **options: Any) -> None:
        """Markup at a place, by default its lower left corner. With `xref` x is on that
        axis."""
        size, colour = (
            options.pop("size", self._letters),
            options.pop("colour", look.INK),
        )
        note = {**_NOTE, "text": markup, "showarrow": False, "align": "left", **options}
        note["x"] = x if "xref" in options else self._across(x)
        note["y"] = self._up(y)
        self._notes.append({**note, "font": {"size": size, "color": colour}})

    def _add_text(self, line: fig.TextLine) -> None:
        text = html.escape(line.text)
        if line.hint:
            text += f"   {_small(html.escape(line.hint), look.MUTED, 14)}"
        markup, colour = (
            (f"<b>{text}</b>", look.INK) if line.heading else (text, look.MUTED)
        )
        self._note(
            markup, line.left, line.base, size=round(0.8 * line.size), colour=colour
        )

    def _add_panel(self, panel: fig.Panel) -> None:
        box, domain = panel.box, self._domain(panel.box)
        number = str(len(self._axes) // 2 + 1) if self._axes else ""
        x, y = f"x{number}", f"y{number}"
        x_axis, y_axis = (
            self._axis(scale, panel.is_empty) for scale in (panel.x, panel.y)
        )
        x_axis |= {"anchor": y, "showline": True, "linecolor": look.MUTED}
        for axis, scale, name in ((x_axis, panel.x, x), (y_axis, panel.y, y)):
            if (
                scale.link
                and (first := self._links.setdefault(scale.link, name)) != name
            ):
                axis["matches"] = first
        if panel.bars and not panel.horizontal:
            x_axis |= {"showgrid": False, "title": None}
        self._axes[f"xaxis{number}"] = {**x_axis, "domain": domain["x"]}
        self._axes[f"yaxis{number}"] = {**y_axis, "domain": domain["y"], "anchor": x}
        self._add_head(panel)
        traces = panel_traces(panel, len(self._figure.panels), self._colours)
        if panel.bars and not panel.horizontal:
            self._add_group_notes(panel, x)
        if panel.is_empty:
            self._note(
                panel.note,
                box.left + box.width / 2,
                box.bottom - box.height / 2,
                size=20,
                colour=look.MUTED,
                xanchor="center",
                yanchor="middle",
            )
        self._traces += [{**trace, "xaxis": x, "yaxis": y} for trace in traces]

    def _add_head(self, panel: fig.Panel) -> None:
        words = ""
        if panel.title:
            size = _fitting(1.1 * len(panel.title), panel.box.width, self._letters + 1)
            title = html.escape(fig.short(panel.title, 60))
            words = f'<b style="font-size:{size}px">{title}</b>'
        if panel.keys:
            count = 1.2 * len(panel.title) * (not panel.bars)
            count += sum(len(text) + 2 for _, text in panel.keys)
            size = _fitting(count, panel.box.width, 13)
            keys = [
                _small(html.escape(text), colour, size) for colour, text in panel.keys
            ]
            words += ("<br>" if panel.bars and words else "  ") + "  ".join(keys)
        if panel.hint:
            words += "<br>" + _small(html.escape(panel.hint), look.MUTED, 12)
        if words:
            self._note(
                words, panel.box.left, panel.box.top, size=self._letters + 1, yshift=3
            )

    def _axis(self, scale: fig.Scale, empty: bool) -> dict[str, Any]:
        axis: dict[str, Any] = {
            "range": list(scale.ends),
            "gridcolor": look.GRID,
            "zeroline": False,
            "automargin": True,
            "exponentformat": "e",
            "hoverformat": ",.7~r",
            "nticks": scale.most,
            "tickformat": number_format(scale),
            "tickfont": {"size": self._letters},
            "ticklabelstandoff": 4,
            "showticklabels": scale.numbers and not empty,
            "showgrid": not empty,
            "title": {
                "text": html.escape(scale.label),
                "standoff": 10,
                "font": {"size": self._letters},
            },
        }
        if scale.ticks:
            places, texts = zip(*scale.ticks, strict=True)
            axis["tickvals"] = (
                [10.0**place for place in places] if scale.log else list(places)
            )
            axis["ticktext"] = [html.escape(text) for text in texts]
        if scale.log:
            axis["type"] = "log"
        return axis

    def _add_group_notes(self, panel: fig.Panel, x: str) -> None:
        """The names of the groups of bars, and the label of their axis."""
        box, (low, high) = panel.box, panel.x.ends
        for group, places in panel.groups.items():
            room = box.width * (len(places) + 0.4) / (high - low)
            size = _fitting(len(group), room, self._letters + 1)
            self._note(
                f"<b>{html.escape(group)}</b>",
                (places[0] + places[-1]) / 2,
                box.bottom,
                xref=x,
                size=size,
                yshift=-26,
                xanchor="center",
                yanchor="top",
            )
        self._note(
            html.escape(panel.x.label),
            box.left,
            box.bottom,
            size=13,
            colour=look.MUTED,
            xshift=-6,
            yshift=-8,
            xanchor="right",
            yanchor="top",
        )


def _fitting(count: float, room: float, most: int) -> int:
    """The size at which so many letters have room in pixels of the PNG."""
    return max(min(most, int(PIXEL * room / (fig.LETTER * max(count, 1)))), _SMALLEST)


def _small(markup: str, colour: str, size: int) -> str:
    return (
        "<span "
        f'style="color:{colour};font-size:{size}px;font-weight:normal">{markup}</span>'
    )


def _colours(shading: look.Shading) -> dict[str, Any]:
    return {
        "colorscale": [
            [i / (len(look.SHADES) - 1), s] for i, s in enumerate(look.SHADES)
        ],
        "cmin": shading.ends[0],
        "cmax": shading.ends[1],
        "colorbar": {
            **_COLOUR_BAR,
            "y": 1.0,
            "yanchor": "bottom",
            "nticks": 5,
            "tickfont": {"size": 12},
            "title": {
                "text": html.escape(shading.name),
                "side": "top",
                "font": {"size": 14},
            },
        },
    }


def packed(value: Any) -> Any:
    """Arrays of numbers as plotly.js reads them from a few bytes, in place of long
    texts."""
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
