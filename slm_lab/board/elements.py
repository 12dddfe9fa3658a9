"""Pieces of pages. Dash shows every text as it is: no name can become markup."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dash import dcc, html

from slm_lab.board.query import CHOICES
from slm_lab.charts.chart import Chart, Curve, Panel, curves_panel
from slm_lab.charts.look import MUTED
from slm_lab.charts.page import graph

LONGEST = 300  # letters of a cell


def rows_table(
    header: Sequence[Any], rows: Iterable[Sequence[Any]], words: int = 0
) -> html.Div:
    """A table of texts or components; columns up to `words` are aligned to the left."""
    kinds = ["words" if i <= words else "number" for i in range(len(header))]

    def line(kind: Any, cells: Sequence[Any]) -> html.Tr:
        shown = [
            f"{c[:LONGEST]}…" if isinstance(c, str) and len(c) > LONGEST else c
            for c in cells
        ]
        return html.Tr(
            [kind(c, className=k) for c, k in zip(shown, kinds, strict=True)]
        )

    body = html.Tbody([line(html.Td, cells) for cells in rows])
    return html.Div(
        html.Table([html.Thead(line(html.Th, header)), body]), className="wide"
    )


def section(title: str, *content: Any, hint: str = "") -> html.Section:
    """Content under a heading."""
    return html.Section([html.H2([title, html.Small(hint)]), *content])


def part(name: str) -> html.Div:
    """The place of a part of the page."""
    return html.Div(id={"part": name}, className="part")


def chip(status: str) -> html.Span:
    """The status of a run."""
    return html.Span(status, className=f"chip {status.partition(' ')[0]}")


def command(about: str, text: str) -> html.Div:
    """A command to copy."""
    copy = dcc.Clipboard(content=text, title="copy", className="copy")
    return html.Div([html.Span(about), html.Code(text), copy], className="command")


def select(
    name: str, label: str, value: str, options: Sequence[Mapping[str, str]] = ()
) -> html.Label:
    """A control that chooses one of `options`, or of the words of `CHOICES`."""
    options = options or [
        {"label": each, "value": k} for k, each in CHOICES[name].items()
    ]
    control = dcc.Dropdown(
        options,
        value,
        id={"control": name},
        clearable=False,
        searchable=len(options) > 9,
    )
    return html.Label([html.Span(label), control], className="control")


def problem(text: str) -> html.P:
    """Why something cannot be shown."""
    return html.P(text, className="problem")


FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
MARGIN = {"l": 50, "r": 14, "t": 12, "b": 36}
_MODE_BAR = [["toImage", "resetScale2d"]]


def curves_graph(
    curves: list[Curve], x: str, name: str, height: int = 200, legend: bool = False
) -> dcc.Graph:
    """Curves over an axis labelled `x`; `name` keeps the zoom of a graph while it
    grows."""
    return panel_graph(curves_panel(x, "", curves), name, height, legend=legend)


def panel_graph(
    panel: Panel,
    name: str,
    height: int,
    margin: Mapping[str, int] = MARGIN,
    legend: bool = False,
) -> dcc.Graph:
    """A panel of a chart, without the titles above it."""
    panel = panel._replace(title="", hint="")
    return chart_graph(Chart("", "", ((panel,),), legend=legend), name, height, margin)


def chart_graph(
    chart: Chart, name: str, height: int, margin: Mapping[str, int]
) -> dcc.Graph:
    """The panels of a chart, without the words around them."""
    layout = {
        "title": None,
        "font": {"family": FONT, "size": 12},
        "margin": dict(margin),
        "uirevision": name,
        "height": height,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED},
    }
    return dcc.Graph(
        figure=graph(chart, layout),
        config={
            "displaylogo": False,
            "modeBarButtons": _MODE_BAR,
            "displayModeBar": chart.legend,
        },
        responsive=True,
        style={"height": f"{height}px"},
    )
