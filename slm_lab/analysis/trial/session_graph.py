"""The graph of one Session: returns, evaluations and everything its learner reported."""

from pathlib import Path

import numpy as np

from slm_lab.analysis.figure.axis import (
    EVAL_RETURNS,
    EVAL_SPREAD,
    RETURNS,
    Axis,
    frames,
    learner_axis,
    learner_columns,
    line,
)
from slm_lab.analysis.figure.figure import MAX_POINTS, Curve, Overview, Panel
from slm_lab.analysis.figure.grid import Line
from slm_lab.analysis.figure.render import write_figure
from slm_lab.metrics.reader import Rows

_NO_VALUES = "no values yet"
_PANEL_POINTS = 1000  # of a line: a panel is a few hundred pixels wide


def draw_session_graphs(
    graph_dir: str | Path,
    rows: Rows,
    evaluations: Rows,
    prefix: str,
    title: str,
) -> list[Path]:
    """Draws `{prefix}_session_graph_overview.png` and `.html` into a folder of the run folder.

    Returns the paths. Raises OSError.
    """
    graph_dir = Path(graph_dir)
    overview = session_overview(rows, evaluations, title)
    stem = f"{prefix}_session_graph_overview"
    return write_figure(overview, graph_dir, stem, run_dir=graph_dir.parent)


def session_overview(rows: Rows, evaluations: Rows, title: str) -> Overview:
    """A panel of returns, one of evaluations if there are any, one per column that has values.

    All against frames; the columns are in the order of `rows`.
    """
    panels = [_returns_panel(rows)]
    if len(evaluations):
        panels.append(_evaluations_panel(evaluations))
    panels += [_column_panel(rows, column) for column in learner_columns(rows)]
    return Overview(title, _count_text(rows, evaluations), frames().label, tuple(panels))


def decimate(values: Line, max_points: int = MAX_POINTS) -> Line:
    """At most `max_points` of the points, evenly chosen, the first and last among them."""
    count = values.x.size
    if count <= max_points:
        return values
    chosen = np.linspace(0, count - 1, max_points).round().astype(np.int64)
    return Line(values.x[chosen], values.y[chosen])


def _returns_panel(rows: Rows) -> Panel:
    returns, average = (_panel_line(rows, y) for y in RETURNS)
    if not returns.x.size:
        return Panel(RETURNS[0].label, (), _NO_VALUES)
    row = Curve("", returns.x, returns.y, colour=5)
    smoothed = Curve("smoothed", average.x, average.y)
    return Panel(RETURNS[0].label, (row, smoothed))


def _evaluations_panel(rows: Rows) -> Panel:
    mean, std = (_panel_line(rows, y) for y in (EVAL_RETURNS, EVAL_SPREAD))
    curve = Curve("± 1 std of episodes", mean.x, mean.y, std.y, colour=2)
    return Panel("evaluation return", (curve,) if mean.x.size else (), _NO_VALUES)


def _column_panel(rows: Rows, column: str) -> Panel:
    y = learner_axis(column)
    values = _panel_line(rows, y)
    curves = (Curve("", values.x, values.y),) if values.x.size else ()
    return Panel(y.label, curves, _NO_VALUES)


def _panel_line(rows: Rows, y: Axis) -> Line:
    return decimate(line(rows, frames(), y), _PANEL_POINTS)


def _count_text(rows: Rows, evaluations: Rows) -> str:
    """ "80 rows, 12 evaluations"."""
    parts = [f"{len(rows):,} row{'' if len(rows) == 1 else 's'}".replace(",", " ")]
    if count := len(evaluations):
        parts.append(f"{count:,} evaluation{'' if count == 1 else 's'}".replace(",", " "))
    return ", ".join(parts)
