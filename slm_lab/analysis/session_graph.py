"""The graph of one Session: returns, evaluations and everything its learner reported."""

from pathlib import Path

import numpy as np
import pandas as pd

from slm_lab.analysis.axis import (
    EVAL_RETURNS,
    EVAL_SPREAD,
    RETURNS,
    Axis,
    frames,
    learner_axis,
    learner_columns,
    line,
)
from slm_lab.analysis.figure import MAX_POINTS, Curve, Overview, Panel
from slm_lab.analysis.grid import Line
from slm_lab.analysis.load import load_session_df
from slm_lab.analysis.render import write_figure
from slm_lab.metrics.tracker import MA_WINDOW

_NO_VALUES = "no values yet"
_PANEL_POINTS = 1000  # of a line: a panel is a few hundred pixels wide


def draw_session_graphs(
    graph_dir: str | Path,
    csv: str | Path,
    prefix: str,
    title: str,
    eval_csv: Path | None = None,
) -> list[Path]:
    """Draws `{prefix}_session_graph_overview.png` and `.html` into a folder of the run folder.

    `eval_csv` has the Session's evaluation rows; a file that is missing or without rows is none.
    Returns the paths. Raises OSError.
    """
    graph_dir = Path(graph_dir)
    evaluations = None
    if eval_csv is not None and eval_csv.exists():
        evaluations = load_session_df(eval_csv)
    overview = session_overview(load_session_df(csv), title, evaluations)
    stem = f"{prefix}_session_graph_overview"
    return write_figure(overview, graph_dir, stem, run_dir=graph_dir.parent)


def session_overview(
    df: pd.DataFrame, title: str, evaluations: pd.DataFrame | None = None
) -> Overview:
    """A panel of returns, one of evaluations if there are any, one per column that has values.

    All against frames; the columns are in the order of the CSV.
    """
    panels = [_returns_panel(df)]
    if evaluations is not None and len(evaluations):
        panels.append(_evaluations_panel(evaluations))
    panels += [_column_panel(df, column) for column in learner_columns(df)]
    return Overview(title, _count_text(df, evaluations), frames().label, tuple(panels))


def decimate(values: Line, max_points: int = MAX_POINTS) -> Line:
    """At most `max_points` of the points, evenly chosen, the first and last among them."""
    count = values.x.size
    if count <= max_points:
        return values
    chosen = np.linspace(0, count - 1, max_points).round().astype(np.int64)
    return Line(values.x[chosen], values.y[chosen])


def _returns_panel(df: pd.DataFrame) -> Panel:
    returns, average = (_panel_line(df, y) for y in RETURNS)
    if not returns.x.size:
        return Panel(RETURNS[0].label, (), _NO_VALUES)
    row = Curve("", returns.x, returns.y, colour=5)
    of_rows = Curve(f"{MA_WINDOW}-row mean", average.x, average.y)
    return Panel(RETURNS[0].label, (row, of_rows))


def _evaluations_panel(df: pd.DataFrame) -> Panel:
    mean, std = (_panel_line(df, y) for y in (EVAL_RETURNS, EVAL_SPREAD))
    curve = Curve("± 1 std of episodes", mean.x, mean.y, std.y, colour=2)
    return Panel("evaluation return", (curve,) if mean.x.size else (), _NO_VALUES)


def _column_panel(df: pd.DataFrame, column: str) -> Panel:
    y = learner_axis(column)
    values = _panel_line(df, y)
    curves = (Curve("", values.x, values.y),) if values.x.size else ()
    return Panel(y.label, curves, _NO_VALUES)


def _panel_line(df: pd.DataFrame, y: Axis) -> Line:
    return decimate(line(df, frames(), y), _PANEL_POINTS)


def _count_text(df: pd.DataFrame, evaluations: pd.DataFrame | None) -> str:
    """ "80 rows, 12 evaluations"."""
    parts = [f"{len(df):,} row{'' if len(df) == 1 else 's'}".replace(",", " ")]
    if evaluations is not None and len(evaluations):
        count = len(evaluations)
        parts.append(f"{count:,} evaluation{'' if count == 1 else 's'}".replace(",", " "))
    return ", ".join(parts)
