"""The command `slm-lab plot`: its output and exit code."""

from contextlib import ExitStack

from rich.box import SIMPLE_HEAD
from rich.text import Text

from slm_lab.analysis.overlay.table import improvement_text, text_table
from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.experiment.plot.plot import PlotRequest, plot
from slm_lab.storage.archive import unpacked


def plot_runs(request: PlotRequest, as_json: bool = False) -> None:
    """Draws the graph and prints its numbers. Raises LabError."""
    console = wide_console()
    with ExitStack() as kept:
        folders = [kept.enter_context(unpacked(each)) for each in request.folders]
        plotted = plot(request._replace(folders=tuple(folders)))
    if as_json:
        better = plotted.improvement
        document = {
            "graphs": plotted.paths,
            "y": plotted.y_label,
            "runs": [each._asdict() for each in plotted.endings],
            "improvement": better and better._asdict(),
            "notes": plotted.notes,
        }
        print_json(document)
        return
    rows = text_table(plotted.endings)
    title = plotted.y_label.capitalize()
    print_table(console, title, rows.header, rows.rows, box=SIMPLE_HEAD, pad_edge=False)
    if plotted.improvement is not None:
        print_line(console, improvement_text(plotted.improvement))
    for note in plotted.notes:
        print_line(console, Text(note, "yellow"))
    for path in plotted.paths:
        print_line(console, f"graph {path}")
