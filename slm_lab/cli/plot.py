"""The command `slm-lab plot`: what it prints, and the exit code it ends with."""

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.overlay_table import Improvement, text_table
from slm_lab.experiment.plot import PlotRequest, plot

LOG_WIDTH = 140
"""Columns of the table where there is no terminal."""


def plot_runs(request: PlotRequest) -> int:
    """Draws the graph, prints the numbers beside it; returns the exit code.

    Raises LabError for what cannot be drawn.
    """
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else LOG_WIDTH)
    plotted = plot(request)
    rows = text_table(plotted.endings)
    table = Table(
        title=plotted.y_label.capitalize(),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for index, name in enumerate(rows.header):
        table.add_column(name, justify="right" if index else "left")
    for cells in rows.rows:
        table.add_row(*map(Text, cells))
    console.print(table)
    if plotted.improvement is not None:
        _say(console, _sentence(plotted.improvement))
    for note in plotted.notes:
        _say(console, Text(note, "yellow"))
    for path in plotted.paths:
        _say(console, f"graph {path}")
    return 0


def _sentence(found: Improvement) -> str:
    low, high = (f"{float(end):.2f}" for end in found.interval)
    return (
        f"a seed of {found.better} ends above one of {found.worse} with probability "
        f"{found.probability:.2f} (95 % interval {low} to {high})"
    )


def _say(console: Console, line: str | Text) -> None:
    """Prints a line as it is, however long: a path is there to be copied."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)
