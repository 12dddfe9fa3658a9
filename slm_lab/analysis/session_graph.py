"""The graphs of one Session: returns and everything its learner reported."""

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
    total_frames,
    wall_clock,
)
from slm_lab.analysis.figure import MAX_POINTS, Curve, Figure
from slm_lab.analysis.grid import Line
from slm_lab.analysis.load import load_session_df
from slm_lab.analysis.render import write_figure


def draw_session_graphs(
    graph_dir: str | Path, csv: str | Path, prefix: str, title: str, subtitle: str = ""
) -> list[Path]:
    """Draws all graphs of a Session into `graph_dir`, a folder of the run folder.

    Files are `{prefix}_session_graph_{y}_vs_{x}.png` and `.html`: y `mean_returns` and
    `mean_returns_ma` against x `frames`, `total_frames` and `wall_t`, and each learner column that
    has values against `frames`. Returns the paths. Raises OSError.
    """
    graph_dir = Path(graph_dir)
    df = load_session_df(csv)
    longest = float(df["wall_t"].max()) if len(df) else 0.0
    pairs = [(x, y) for x in (frames(), total_frames(), wall_clock(longest)) for y in RETURNS]
    pairs += [(frames(), learner_axis(column)) for column in learner_columns(df)]
    paths: list[Path] = []
    for x, y in pairs:
        figure = session_figure(df, x, y, title, subtitle)
        stem = f"{prefix}_session_graph_{y.file}_vs_{x.file}"
        paths += write_figure(figure, graph_dir, stem, run_dir=graph_dir.parent)
    return paths


def draw_session_eval_graph(
    graph_dir: str | Path, csv: str | Path, prefix: str, title: str, subtitle: str = ""
) -> list[Path]:
    """Draws `{prefix}_session_graph_eval_mean_returns_vs_frames` of a Session's evaluation rows.

    Returns the paths. Raises OSError.
    """
    graph_dir = Path(graph_dir)
    figure = session_eval_figure(load_session_df(csv), title, subtitle)
    stem = f"{prefix}_session_graph_{EVAL_RETURNS.file}_vs_{frames().file}"
    return write_figure(figure, graph_dir, stem, run_dir=graph_dir.parent)


def session_eval_figure(df: pd.DataFrame, title: str, subtitle: str) -> Figure:
    """Returns of evaluations against frames; the band is the spread over their episodes."""
    x, y = frames(), EVAL_RETURNS
    mean, std = decimate(line(df, x, y)), decimate(line(df, x, EVAL_SPREAD))
    label = "mean ± 1 std over the episodes"
    curves = (Curve(label, mean.x, mean.y, std.y),) if mean.x.size else ()
    note = "" if curves else "no values yet"
    return Figure(title, subtitle, x.label, y.label, curves, note)


def session_figure(df: pd.DataFrame, x: Axis, y: Axis, title: str, subtitle: str) -> Figure:
    """One column of a session_df against one clock."""
    values = decimate(line(df, x, y))
    curves = (Curve("", values.x, values.y),) if values.x.size else ()
    note = "" if curves else "no values yet"
    return Figure(title, subtitle, x.label, y.label, curves, note)


def decimate(values: Line, max_points: int = MAX_POINTS) -> Line:
    """At most `max_points` of the points, evenly chosen, the first and last among them."""
    count = values.x.size
    if count <= max_points:
        return values
    chosen = np.linspace(0, count - 1, max_points).round().astype(np.int64)
    return Line(values.x[chosen], values.y[chosen])
