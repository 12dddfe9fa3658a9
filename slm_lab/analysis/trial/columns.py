"""Which columns of Sessions have a graph each, and in which order."""

from collections.abc import Mapping

from slm_lab.analysis.figure.axis import EVAL_RETURNS, RETURNS, Axis, learner_axis
from slm_lab.metrics.reader import Rows

CLOCKS = ("frame", "total_frame", "wall_t", "cpu_t")
"""Columns that only grow with time."""
FIRST = ("loss", "entropy", "approx_kl", "staleness_p50", "policy_lag", "actor_wait_share",
         "learner_wait_share", "sync_share", "fps")  # fmt: skip
"""The panels after those of returns; other columns follow in the order of the file."""
NOT_DRAWN = (*CLOCKS, "epi", "opt_step", "total_reward", "total_reward_ma", "mean_return",
             "recent_return", "final_return", "final_return_episodes")  # fmt: skip
"""Columns of time and of returns, which have graphs of other forms."""


def axes_of(rows: Mapping[int, Rows], played: Mapping[int, Rows]) -> list[Axis]:
    """Returns, evaluations, and the columns of Sessions that have values; `played` has the rows of
    their evaluations."""
    names = {c: None for each in rows.values() for c in each.columns if each.has_values(c)}
    columns = [name for name in (*FIRST, *names) if name in names and name not in NOT_DRAWN]
    of_returns = [RETURNS[0], *([EVAL_RETURNS] if played else [])]
    return of_returns + [learner_axis(name) for name in dict.fromkeys(columns)]
