"""Pieces of pages. Dash shows every text as it is: no name can become markup."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dash import dcc, html

from slm_lab.board.query import CHOICES, file_link
from slm_lab.charts.chart import Chart, Panel
from slm_lab.charts.look import MUTED
from slm_lab.charts.page import graph

LONGEST = 300
"""The most letters of a cell."""
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
MARGIN = {"l": 50, "r": 14, "t": 12, "b": 36}


def rows_table(
    header: Sequence[Any], rows: Iterable[Sequence[Any]], words: int = 0
) -> html.Div:
    """A table of texts or components; columns up to `words` are aligned to the left."""

    def line(kind: Any, cells: Sequence[Any]) -> html.Tr:
        places = []
        for column, cell in enumerate(cells):
            shown = cell
            if isinstance(cell, str) and len(cell) > LONGEST:
                shown = f"{cell[:LONGEST]}…"
            align = "words" if column <= words else "number"
            places.append(kind(shown, className=align))
        return html.Tr(places)

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


def command(purpose: str, text: str) -> html.Div:
    """A command to copy."""
    copy = dcc.Clipboard(content=text, title="copy", className="copy")
    return html.Div([html.Span(purpose), html.Code(text), copy], className="command")


def select(
    name: str, label: str, value: str, options: Sequence[Mapping[str, str]] = ()
) -> html.Label:
    """A control that chooses one of `options`, or of the words of `CHOICES`."""
    options = options or [
        {"label": text, "value": word} for word, text in CHOICES[name].items()
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


def pages(root: Path, files: Iterable[Path]) -> list[html.Iframe]:
    """The pages that a run has drawn. Each is loaded again after each change."""
    return [
        html.Iframe(
            src=f"{file_link(root, file)}?{file.stat().st_mtime_ns}",
            title=file.stem,
            className="page",
        )
        for file in files
    ]


def video(root: Path, file: Path) -> html.Video:
    """A video that is loaded when it is played."""
    return html.Video(src=file_link(root, file), controls=True, preload="none")


def panel_graph(
    panel: Panel, name: str, height: int, legend: bool = False
) -> dcc.Graph:
    """A panel of a chart, without the titles above it; `name` keeps the zoom of a graph
    while it grows."""
    chart = Chart("", "", ((panel._replace(title="", hint=""),),), legend=legend)
    layout = {
        "title": None,
        "font": {"family": FONT, "size": 12},
        "margin": MARGIN,
        "uirevision": name,
        "height": height,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED},
    }
    return dcc.Graph(
        figure=graph(chart, layout),
        config={
            "displaylogo": False,
            "modeBarButtons": [["toImage", "resetScale2d"]],
            "displayModeBar": legend,
        },
        responsive=True,
        style={"height": f"{height}px"},
    )
