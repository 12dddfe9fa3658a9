"""Which columns of Sessions have a graph each, and in which order."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from slm_lab.analysis.figure.axis import EVAL_RETURNS, RETURNS, Axis, learner_axis, line
from slm_lab.analysis.figure.grid import Line
from slm_lab.analysis.overlay.overlay import x_axis
from slm_lab.analysis.trial.session_graph import decimate
from slm_lab.metrics.reader import Rows

POINTS = 400
"""Of a line, at most."""
CLOCKS = ("frame", "total_frame", "wall_t", "cpu_t")
"""Columns that only grow with time."""
FIRST = ("loss", "entropy", "approx_kl", "staleness_p50", "policy_lag", "actor_wait_share",
         "learner_wait_share", "sync_share", "fps")  # fmt: skip
"""The panels after those of returns; other columns follow in the order of the file."""
NOT_DRAWN = (*CLOCKS, "epi", "opt_step", "total_reward", "total_reward_ma", "mean_return",
             "recent_return", "final_return", "final_return_episodes")  # fmt: skip
"""Columns of time and of returns, which have graphs of other forms."""


class Columns(NamedTuple):
    """What the Sessions of a Trial have written, column by column."""

    lines: list[tuple[Axis, dict[int, Line]]]
    """Those with a graph, with the line of each Session."""
    constant: list[tuple[Axis, float]]
    """Those whose value never changes."""


def columns_of(
    rows: Mapping[int, Rows], played: Mapping[int, Rows], x: str, window_share: float
) -> Columns:
    """The columns of Sessions with `rows`, and of their evaluations `played`, over the axis named
    `x`, each smoothed over a share of the frames."""
    over = x_axis(x, max(float(each["wall_t"][-1]) for each in rows.values()))
    found = Columns([], [])
    for axis in _axes(rows, played):
        y = axis._replace(window_share=window_share)
        of = played if axis is EVAL_RETURNS else rows
        lines = {session: decimate(line(each, over, y), POINTS) for session, each in of.items()}
        values = np.concatenate([each.y for each in lines.values()])
        if len(values) and np.allclose(values, values[0]) and axis not in RETURNS:
            found.constant.append((axis, float(values[0])))
        elif len(values):
            found.lines.append((axis, lines))
    return found


def _axes(rows: Mapping[int, Rows], played: Mapping[int, Rows]) -> list[Axis]:
    """Returns, evaluations, and the columns of Sessions that have values; `played` has the rows of
    their evaluations."""
    names = {c: None for each in rows.values() for c in each.columns if each.has_values(c)}
    columns = [name for name in (*FIRST, *names) if name in names and name not in NOT_DRAWN]
    of_returns = [RETURNS[0], *([EVAL_RETURNS] if played else [])]
    return of_returns + [learner_axis(name) for name in dict.fromkeys(columns)]
