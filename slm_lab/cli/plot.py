"""The command `slm-lab plot`: its output and exit code."""

import sys
from typing import Any

from rich.box import SIMPLE_HEAD

from slm_lab.charts.final_returns import (
    as_csv,
    as_latex,
    text_table,
)
from slm_lab.charts.plot import Plotted, plot
from slm_lab.charts.request import PlotRequest
from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.core.errors import UsageError
from slm_lab.core.text import printable
from slm_lab.spec.schema.messages import choice_message

FORMS = ("csv", "latex")
"""The forms of a table for a paper."""


def plot_runs(
    request: PlotRequest, as_json: bool = False, form: str | None = None
) -> None:
    """Draws the graph and prints its numbers; in a `form` only the table. Raises
    LabError."""
    if form not in (None, *FORMS):
        raise UsageError(f"--table {form}: {choice_message(form, FORMS)}")
    if form and as_json:
        raise UsageError("--table and --json exclude each other: remove one of them")
    plotted = plot(request, draws=form is None or request.is_file)
    if as_json:
        print_json(_document(plotted))
    elif form is not None:
        _print_table_for_paper(plotted, form)
    else:
        _print_plotted(plotted)


def _document(plotted: Plotted) -> dict[str, Any]:
    endings, better, paired = plotted.results
    return {
        "graphs": plotted.paths,
        "replaced": plotted.replaced,
        "y": plotted.y_label,
        "runs": [row._asdict() for row in endings],
        "improvement": better and better._asdict(),
        "paired": paired and paired._asdict(),
        "notes": plotted.notes,
    }


def _print_table_for_paper(plotted: Plotted, form: str) -> None:
    """Prints only the table to the standard output, and all else beside it."""
    for line in (*plotted.notes, *_graph_lines(plotted)):
        print(printable(line), file=sys.stderr)
    if form == "csv":
        text = as_csv(plotted.results.endings)
    else:
        text = as_latex(text_table(plotted.results.endings))
    print(printable(text), end="")


def _print_plotted(plotted: Plotted) -> None:
    console = wide_console()
    table = text_table(plotted.results.endings)
    is_of_returns = any(row.highest is not None for row in plotted.results.endings)
    title = "Final returns"
    if is_of_returns:
        title = plotted.y_label.capitalize()
    print_table(
        console=console,
        title=title,
        header=table.header,
        rows=table.rows,
        spare=table.spare,
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for text in plotted.results.sentences:
        print_line(console, text)
    for note in plotted.notes:
        print_line(console, note, "yellow")
    for line in _graph_lines(plotted):
        print_line(console, line)


def _graph_lines(plotted: Plotted) -> list[str]:
    lines = []
    for path in plotted.paths:
        note = " (replaced)" if path in plotted.replaced else ""
        lines.append(f"graph {path}{note}")
    return lines
