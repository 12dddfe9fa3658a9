"""A small panel for each column that the Sessions of a training write."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from slm_lab.charts import axis
from slm_lab.charts.chart import Curve, Panel, curves_panel
from slm_lab.charts.curves import decimate
from slm_lab.charts.overlay import ink_of
from slm_lab.core.text import significant
from slm_lab.metrics.reader import Rows

POINTS = 400
"""Maximum points per curve."""
FIRST = (
    "loss",
    "entropy",
    "approx_kl",
    "staleness_p50",
    "policy_lag",
    "actor_wait_share",
    "learner_wait_share",
    "sync_share",
    "fps",
)
"""The panels that follow the returns; other columns follow in the order of the file."""
NOT_DRAWN = (
    *axis.CLOCKS,
    "epi",
    "opt_step",
    "total_reward",
    "total_reward_ma",
    "mean_return",
    "recent_return",
    "final_return",
    "final_return_episodes",
)
"""Columns of time and of returns, which have graphs of other forms."""


class ColumnPanels(NamedTuple):
    """A panel for each column, and a text for each that never changes."""

    panels: dict[axis.Axis, Panel]
    constant: list[str]


def column_panels(
    rows: Mapping[int, Rows],
    evaluations: Mapping[int, Rows],
    names: Mapping[int, str],
    x: str,
    window_share: float,
) -> ColumnPanels:
    """A panel for each column, over the axis of the word `x`, with a line for each
    Session in `names`. Lines are smoothed over a share of the frames. No entry of
    `rows` is empty."""
    longest = max(float(table["wall_t"][-1]) for table in rows.values())
    over = axis.x_axis(x, longest)
    panels = dict[axis.Axis, Panel]()
    constant = list[str]()
    for y in _axes(rows, bool(evaluations)):
        tables = evaluations if y is axis.EVAL_RETURNS else rows
        smoothed = y._replace(window_share=window_share)
        lines = {
            session: decimate(axis.line(table, over, smoothed), POINTS)
            for session, table in tables.items()
        }
        values = np.concatenate([line.y for line in lines.values()])
        if not len(values):
            continue
        if y not in axis.RETURNS and np.allclose(values, values[0]):
            constant.append(f"{y.label} {significant(float(values[0]))}")
            continue
        curves = [
            Curve(names[session], line.x, line.y, ink=ink_of(session))
            for session, line in lines.items()
        ]
        panels[y] = curves_panel("", "", curves)
    return ColumnPanels(panels, constant)


def _axes(rows: Mapping[int, Rows], has_evaluations: bool) -> list[axis.Axis]:
    """Returns, evaluations, and the columns of Sessions that have values."""
    names = {
        column: None
        for table in rows.values()
        for column in table.columns
        if table.has_values(column)
    }
    first = [name for name in FIRST if name in names]
    columns = [
        name for name in dict.fromkeys([*first, *names]) if name not in NOT_DRAWN
    ]
    returns = [axis.RETURNS[0]]
    if has_evaluations:
        returns.append(axis.EVAL_RETURNS)
    return returns + [axis.learner_axis(name) for name in columns]
