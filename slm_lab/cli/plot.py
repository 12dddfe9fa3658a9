"""The command `slm-lab plot`: its output and exit code."""

import sys
from contextlib import ExitStack

from rich.box import SIMPLE_HEAD
from rich.text import Text

from slm_lab.charts.final_returns import (
    as_csv,
    as_latex,
    improvement_text,
    text_table,
)
from slm_lab.charts.plot import plot
from slm_lab.charts.request import PlotRequest
from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.core.errors import UsageError
from slm_lab.core.text import printable
from slm_lab.records.archive import unpacked
from slm_lab.spec.schema.messages import not_among

FORMS = ("csv", "latex")
"""The forms of a table for a paper."""


def plot_runs(
    request: PlotRequest, as_json: bool = False, form: str | None = None
) -> None:
    """Draws the graph and prints its numbers; in a `form` only the table. Raises
    LabError."""
    if form not in (None, *FORMS):
        raise UsageError(f"--table {form}: {not_among(form, FORMS)}")
    if form and as_json:
        raise UsageError("--table and --json exclude each other: remove one of them")
    console = wide_console()
    with ExitStack() as kept:
        folders = [kept.enter_context(unpacked(run)) for run in request.folders]
        draws = form is None or request.is_file
        plotted = plot(request._replace(folders=tuple(folders)), draws)
    drawn = []
    for path in plotted.paths:
        note = " (replaced)" if path in plotted.replaced else ""
        drawn.append(f"graph {path}{note}")
    if as_json:
        better = plotted.improvement
        document = {
            "graphs": plotted.paths,
            "replaced": plotted.replaced,
            "y": plotted.y_label,
            "runs": [row._asdict() for row in plotted.endings],
            "improvement": better and better._asdict(),
            "notes": plotted.notes,
        }
        print_json(document)
        return
    rows = text_table(plotted.endings)
    if form is not None:
        for note in (*plotted.notes, *drawn):
            print(printable(note), file=sys.stderr)
        print(
            printable(as_csv(plotted.endings) if form == "csv" else as_latex(rows)),
            end="",
        )
        return
    is_of_returns = any(row.highest is not None for row in plotted.endings)
    title = "Final returns"
    if is_of_returns:
        title = plotted.y_label.capitalize()
    print_table(
        console=console,
        title=title,
        header=rows.header,
        rows=rows.rows,
        spare=rows.spare,
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    if plotted.improvement is not None:
        print_line(console, improvement_text(plotted.improvement))
    for note in plotted.notes:
        print_line(console, Text(note, "yellow"))
    for line in drawn:
        print_line(console, line)
