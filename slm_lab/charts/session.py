"""The overview of a Session: a panel for each column of its rows."""

from pathlib import Path

import numpy as np

from slm_lab.charts import axis
from slm_lab.charts.chart import (
    Chart,
    Curve,
    Ink,
    Panel,
    Scale,
    around,
    curves_panel,
    grid,
    limits,
)
from slm_lab.charts.curves import decimate
from slm_lab.charts.write import write_chart
from slm_lab.core.text import count_text, significant
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS, LEARNED

_POINTS = 1000  # of a curve: a panel is a few hundred pixels wide
_PALE_BLUE = Ink(5)
_GREEN = Ink(2)


def draw_session_graphs(
    graph_dir: Path,
    rows: Rows,
    evaluations: Rows,
    prefix: str,
    title: str,
    scripts: Path,
) -> list[Path]:
    """Draws `{prefix}_session_graph_overview.png` and `.html` into a folder. Returns
    the paths. Pages load plotly.js from the folder `scripts`. Raises OSError."""
    chart = session_overview(rows, evaluations, title)
    return write_chart(chart, graph_dir, f"{prefix}_session_graph_overview", scripts)


def session_overview(rows: Rows, evaluations: Rows, title: str) -> Chart:
    """A panel of returns, one of evaluations if there are any, one per column whose
    values differ. All against frames; the columns are in the order of `rows`. Constant
    ones are in the subtitle.
    """
    panels = [_returns(rows)]
    facts = [count_text(len(rows), "row")]
    if len(evaluations):
        facts.append(count_text(len(evaluations), "evaluation"))
        panels.append(_evaluations(evaluations))
    reported = [c for c in rows.columns if c in LEARNED or c not in BASE_COLUMNS]
    constant = []
    for y in map(axis.learner_axis, filter(rows.has_values, reported)):
        line = _line(rows, y)
        if line.x.size > 1 and np.ptp(line.y) == 0:
            constant.append(f"{y.label} {significant(float(line.y[0]))}")
        else:
            panels.append(_panel(y.label, Curve("", *line)))
    if constant:
        facts.append(f"constant: {', '.join(constant)}")
    subtitle = " · ".join(facts)
    return Chart(title, subtitle, grid(_over_frames(panels)), linked=True)


def _returns(rows: Rows) -> Panel:
    of_rows, smoothed = (_line(rows, y) for y in axis.RETURNS)
    curves = [Curve("", *of_rows, ink=_PALE_BLUE), Curve("smoothed", *smoothed)]
    return _panel(f"{axis.RETURNS[0].label} (dark: smoothed)", *curves)


def _evaluations(evaluations: Rows) -> Panel:
    mean = _line(evaluations, axis.EVAL_RETURNS)
    std = _line(evaluations, axis.EVAL_SPREAD)
    band = around(mean.y, std.y)
    curve = Curve("± 1 std of episodes", *mean, band=band, ink=_GREEN)
    return _panel("evaluation return ± 1 std", curve)


def _panel(title: str, *curves: Curve) -> Panel:
    return curves_panel("", "", curves, title)


def _over_frames(panels: list[Panel]) -> list[Panel]:
    """The panels with one x range; the lowest of each column names it."""
    x = [curve.x for panel in panels for curve in panel.curves]
    ends = limits(x, margin=0.01)
    columns = len(grid(panels)[0])
    scale = Scale(axis.frames().label, ends)
    return [
        panel._replace(x=scale.linked("x", number + columns >= len(panels)))
        for number, panel in enumerate(panels)
    ]


def _line(rows: Rows, y: axis.Axis) -> Line:
    return decimate(axis.line(rows, axis.frames(), y), _POINTS)
