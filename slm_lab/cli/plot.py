"""The command `slm-lab plot`: its output and exit code."""

from rich.box import SIMPLE_HEAD
from rich.text import Text

from slm_lab.analysis.overlay.table import improvement_text, text_table
from slm_lab.analysis.statistics import Interval
from slm_lab.cli.display.document import print_json
from slm_lab.cli.display.screen import print_line, print_table, wide_console
from slm_lab.experiment.plot.plot import PlotRequest, plot


def plot_runs(request: PlotRequest, as_json: bool = False) -> int:
    """Draws the graph, prints its numbers, and returns the exit code. Raises LabError."""
    console = wide_console()
    plotted = plot(request)
    if as_json:
        better, endings = plotted.improvement, plotted.endings
        document = {
            "graphs": plotted.paths,
            "y": plotted.y_label,
            "runs": [{**each._asdict(), "interval": _ends(each.interval)} for each in endings],
            "improvement": better and {**better._asdict(), "interval": _ends(better.interval)},
            "notes": plotted.notes,
        }
        print_json(document)
        return 0
    rows = text_table(plotted.endings)
    title = plotted.y_label.capitalize()
    print_table(console, title, rows.header, rows.rows, box=SIMPLE_HEAD, pad_edge=False)
    if plotted.improvement is not None:
        print_line(console, improvement_text(plotted.improvement))
    for note in plotted.notes:
        print_line(console, Text(note, "yellow"))
    for path in plotted.paths:
        print_line(console, f"graph {path}")
    return 0


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [float(end) for end in interval]
