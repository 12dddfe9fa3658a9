"""The graph of one Session: returns, evaluations and everything its learner reported."""

from pathlib import Path

import numpy as np

from slm_lab.analysis.figure import axis
from slm_lab.analysis.figure.figure import MAX_POINTS, Curve, Figure, around
from slm_lab.analysis.figure.grid import Line
from slm_lab.analysis.figure.layout import overview
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.table import count_text
from slm_lab.metrics.reader import Rows

_PANEL_POINTS = 1000  # of a line: a panel is a few hundred pixels wide


def draw_session_graphs(
    graph_dir: Path, rows: Rows, evaluations: Rows, prefix: str, title: str, scripts: Path
) -> list[Path]:
    """Draws `{prefix}_session_graph_overview.png` and `.html` into a folder. Returns the paths.
    Pages load plotly.js from the folder `scripts`. Raises OSError."""
    figure = session_overview(rows, evaluations, title)
    return write_figure(figure, graph_dir, f"{prefix}_session_graph_overview", scripts)


def session_overview(rows: Rows, evaluations: Rows, title: str) -> Figure:
    """A panel of returns, one of evaluations if there are any, one per column that has values. All
    against frames; the columns are in the order of `rows`."""
    panels = [(axis.RETURNS[0].label, _returns(rows))]
    if len(evaluations):
        panels.append(("evaluation return", _evaluations(evaluations)))
    for y in map(axis.learner_axis, axis.learner_columns(rows)):
        panels.append((y.label, [Curve("", *_panel_line(rows, y))]))
    counts = [count_text(len(rows), "row")]
    if len(evaluations):
        counts.append(count_text(len(evaluations), "evaluation"))
    return overview(title, ", ".join(counts), axis.frames().label, panels)


def decimate(values: Line, max_points: int = MAX_POINTS) -> Line:
    """At most `max_points` of the points, evenly chosen, the first and last among them."""
    count = values.x.size
    if count <= max_points:
        return values
    chosen = np.linspace(0, count - 1, max_points).round().astype(np.int64)
    return Line(values.x[chosen], values.y[chosen])


def _returns(rows: Rows) -> list[Curve]:
    row, average = (_panel_line(rows, y) for y in axis.RETURNS)
    curves = [Curve("", *row, colour=5), Curve("smoothed", *average)]
    return curves if row.x.size else []


def _evaluations(rows: Rows) -> list[Curve]:
    mean, std = (_panel_line(rows, y) for y in (axis.EVAL_RETURNS, axis.EVAL_SPREAD))
    curve = Curve("± 1 std of episodes", *mean, around(mean.y, std.y), colour=2)
    return [curve] if mean.x.size else []


def _panel_line(rows: Rows, y: axis.Axis) -> Line:
    return decimate(axis.line(rows, axis.frames(), y), _PANEL_POINTS)
