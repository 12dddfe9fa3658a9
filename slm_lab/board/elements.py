"""Pieces of pages. Dash shows every text as it is: no name can become markup."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dash import dcc, html

from slm_lab.board.query import CHOICES

LONGEST = 300  # letters of a cell


def rows_table(header: Sequence[Any], rows: Iterable[Sequence[Any]], words: int = 0) -> html.Div:
    """A table of texts or components; columns up to `words` are aligned to the left."""
    kinds = ["words" if i <= words else "number" for i in range(len(header))]

    def line(kind: Any, cells: Sequence[Any]) -> html.Tr:
        return html.Tr([kind(_cell(c), className=k) for c, k in zip(cells, kinds, strict=True)])

    body = html.Tbody([line(html.Td, cells) for cells in rows])
    return html.Div(html.Table([html.Thead(line(html.Th, header)), body]), className="wide")


def _cell(cell: Any) -> Any:
    return f"{cell[:LONGEST]}…" if isinstance(cell, str) and len(cell) > LONGEST else cell


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
    options = options or [{"label": each, "value": k} for k, each in CHOICES[name].items()]
    control = dcc.Dropdown(
        options, value, id={"control": name}, clearable=False, searchable=len(options) > 9
    )
    return html.Label([html.Span(label), control], className="control")


def problem(text: str) -> html.P:
    """Why something cannot be shown."""
    return html.P(text, className="problem")
