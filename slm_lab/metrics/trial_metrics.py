"""Scalar metrics of a Session and of a Trial, and how fast it trained.
`docs/metrics.md` has the formulas in print.

The final return is in the last row, see `RecentEpisodes`. For the other metrics, R_i is
`total_reward` of the i-th row that has one. R_rand is the random agent's mean return,
and s_i = R_i − R_rand. An undefined metric is None, with its reason in `reasons`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line, common_grid, interpolate, mean_lines
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import LABELS
from slm_lab.metrics.tracker import MA_WINDOW

TRIAL_METRICS = tuple(LABELS["metrics"])
"""The metrics of a Trial in the order of columns and graphs."""
SESSION_METRICS = tuple(name for name in TRIAL_METRICS if name != "consistency")

MAX_OPPOSITE_SHARE = 0.1
"""A denominator Σ d_i keeps its sign if negative d_i are at most this share of
Σ|d_i|."""

NOT_MEASURED = "the random agent's return was not measured"
"""Why metrics that need it are None, unless more is known."""

ROUNDING = 1e-9
"""Strengths smaller than this share of the returns they are differences of are rounding
errors."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The metrics that Sessions and Trials have. `reasons` has an entry for each metric
    that is None."""

    final_return: float | None
    final_return_episodes: int
    """The episodes of all Sessions together."""
    total_reward_ma: float | None
    strength: float | None
    max_strength: float | None
    final_strength: float | None
    sample_efficiency: float | None
    training_efficiency: float | None
    stability: float | None
    random_return: float | None
    reasons: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SessionMetrics(Metrics):
    """One Session's metrics."""

    frame: int
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class TrialMetrics(Metrics):
    """Means of the Sessions' metrics over the Sessions that have them, and their
    consistency. `rests_on` counts the Sessions behind each metric, out of
    `num_sessions`."""

    final_return_std: float | None
    """Population standard deviation over Sessions or repeated runs; None of a single
    one."""
    consistency: float | None
    num_sessions: int
    rests_on: Mapping[str, int]


class Scalar(NamedTuple):
    """A number, or None and the reason why there is none."""

    value: float | None
    reason: str = ""


def session_metrics(
    rows: Rows, random_return: float | None, why_unknown: str = NOT_MEASURED
) -> SessionMetrics:
    """The metrics of one Session's rows; rows without a total_reward are ignored.
    `why_unknown` is why there is no `random_return`."""
    known = ~np.isnan(rows["total_reward"])
    returns = rows["total_reward"][known]
    reason = ""
    if random_return is None:
        reason = why_unknown
    if not returns.size:
        reason = "no row has a return"
    scalars = dict.fromkeys(SESSION_METRICS, Scalar(None, reason))
    episodes = 0
    if len(rows) and not np.isnan(rows["final_return"][-1]):
        scalars["final_return"] = Scalar(float(rows["final_return"][-1]))
        episodes = int(rows["final_return_episodes"][-1])
    if returns.size:
        scalars["total_reward_ma"] = Scalar(float(returns[-MA_WINDOW:].mean()))
    if returns.size and random_return is not None:
        strength = returns - random_return
        scale = _scale(returns, random_return)
        frame = rows["frame"][known]
        opt_step = rows["opt_step"][known]
        scalars |= {
            "strength": Scalar(float(strength.mean())),
            "max_strength": Scalar(float(strength.max())),
            "final_strength": Scalar(float(strength[-1])),
            "sample_efficiency": efficiency(strength, frame, scale),
            "training_efficiency": efficiency(strength, opt_step, scale),
            "stability": stability(strength, scale),
        }
    return SessionMetrics(
        **{name: scalar.value for name, scalar in scalars.items()},
        final_return_episodes=episodes,
        frame=int(rows["frame"][-1]) if len(rows) else 0,
        num_rows=returns.size,
        random_return=random_return,
        reasons=_reasons(scalars),
    )


def training_return(rows: Iterable[Rows]) -> float:
    """The final return of a training: the mean over its workers that have one, from the
    rows of each; NaN without any."""
    finals = [float(table["final_return"][-1]) for table in rows if len(table)]
    known = [number for number in finals if np.isfinite(number)]
    if known:
        return float(np.mean(known))
    return np.nan


def trial_metrics(
    rows: Sequence[Rows],
    random_return: float | None,
    run_of: Sequence[int] | None = None,
    why_unknown: str = NOT_MEASURED,
) -> TrialMetrics:
    """The metrics of a Trial from the rows of its Sessions. In a repeated training
    `run_of` has the run of each Session. Consistency and deviation are then over runs,
    each the mean of its Sessions."""
    sessions = [session_metrics(table, random_return, why_unknown) for table in rows]
    scalars: dict[str, Scalar] = {}
    rests_on: dict[str, int] = {}
    for name in SESSION_METRICS:
        values = [getattr(session, name) for session in sessions]
        values = [value for value in values if value is not None]
        rests_on[name] = len(values)
        if values:
            scalars[name] = Scalar(float(np.mean(values)))
            continue
        reasons = dict.fromkeys(session.reasons.get(name, "") for session in sessions)
        scalars[name] = Scalar(None, "; ".join(reasons) or "no Sessions")
    lines = [_returns_over_frames(table) for table in rows]
    with_returns = [line for line in lines if line.x.size]
    rests_on["consistency"] = len(with_returns)
    lines = mean_lines(lines, run_of) if run_of else with_returns
    scalars["consistency"] = consistency(lines, random_return)
    if random_return is None:
        scalars["consistency"] = Scalar(None, why_unknown)
    if scalars["consistency"].value is None:
        rests_on["consistency"] = 0
    return TrialMetrics(
        **{name: scalar.value for name, scalar in scalars.items()},
        final_return_std=_deviation(
            [metrics.final_return for metrics in sessions], run_of
        ),
        final_return_episodes=sum(
            metrics.final_return_episodes for metrics in sessions
        ),
        num_sessions=len(rows),
        rests_on=rests_on,
        random_return=random_return,
        reasons=_reasons(scalars),
    )


def _reasons(scalars: Mapping[str, Scalar]) -> dict[str, str]:
    return {
        name: scalar.reason for name, scalar in scalars.items() if scalar.value is None
    }


def efficiency(strength: FloatArray, t: FloatArray, scale: float) -> Scalar:
    """Σ(s_i / t_i) / Σ s_i over the rows with t_i > 0; both (R,). In 1 / unit of t.
    Rows before the first optimizer step (t_i = 0) are left out."""
    begun = t > 0
    strength = strength[begun]
    if not strength.size:
        return Scalar(None, "no row with a return comes after the first step")
    rates = strength / t[begun]
    return _ratio(rates.sum(), strength, scale, lambda ratio: ratio)


def stability(strength: FloatArray, scale: float) -> Scalar:
    """1 − |Σ min(s_{i+1} − s_i, 0) / Σ_{i<N} s_i|; strength (N,). 1: it never
    dropped."""
    if strength.size < 2:
        return Scalar(None, "it takes two rows with a return to see a drop")
    drops = np.minimum(np.diff(strength), 0.0)
    return _ratio(drops.sum(), strength[:-1], scale, lambda ratio: 1 - abs(ratio))


def consistency(lines: Sequence[Line], random_return: float | None) -> Scalar:
    """1 − 2 Σ_i std_j(s_ij) / Σ_i mean_j(s_ij) over Sessions j; `lines` are returns
    over frames. i runs over the grid of frames where all have data; std divides by the
    number of Sessions."""
    if random_return is None:
        return Scalar(None, NOT_MEASURED)
    if len(lines) < 2:
        return Scalar(
            None, "it takes two Sessions (or runs) with returns to see how they differ"
        )
    first = max(line.x[0] for line in lines)
    last = min(line.x[-1] for line in lines)
    grid = common_grid(lines)
    grid = grid[(first <= grid) & (grid <= last)]
    if not grid.size:
        return Scalar(None, "the Sessions have no frames in common")
    returns = interpolate(lines, grid)
    mean = returns.mean(axis=0) - random_return
    spread = 2 * returns.std(axis=0).sum()
    return _ratio(spread, mean, _scale(returns, random_return), lambda ratio: 1 - ratio)


def _deviation(
    returns: Sequence[float | None], run_of: Sequence[int] | None
) -> float | None:
    """The standard deviation over the Sessions, or over the runs that they are workers
    of."""
    runs: dict[int, list[float]] = {}
    for run, value in zip(run_of or range(len(returns)), returns, strict=True):
        if value is not None:
            runs.setdefault(run, []).append(value)
    means = [np.mean(values) for values in runs.values()]
    if len(means) > 1:
        return float(np.std(means))
    return None


def _returns_over_frames(rows: Rows) -> Line:
    known = ~np.isnan(rows["total_reward"])
    return Line(rows["frame"][known], rows["total_reward"][known])


def _scale(returns: FloatArray, random_return: float) -> float:
    return max(float(np.abs(returns).max()), abs(random_return))


def _ratio(
    numerator: float, terms: FloatArray, scale: float, metric: Callable[[float], float]
) -> Scalar:
    """`metric` of the numerator over the sum of `terms`, unless that is no valid
    denominator."""
    size = float(np.abs(terms).sum())
    if not np.isfinite(size):
        return Scalar(None, "a return is not finite")
    if size <= ROUNDING * scale * terms.size:
        return Scalar(
            None, "the denominator is zero: the returns are those of the random agent"
        )
    share = float(-terms[terms < 0].sum()) / size
    if share <= MAX_OPPOSITE_SHARE:
        return Scalar(float(metric(numerator / terms.sum())))
    reason = "changes sign: returns are below and above those"
    if share >= 1 - MAX_OPPOSITE_SHARE:
        reason = "is negative: the returns are below those"
    return Scalar(None, f"the denominator {reason} of the random agent")


class Throughput(NamedTuple):
    """The speed of one training, over all workers; the mean over several trainings of a
    Trial. A value is None if no row has its columns."""

    frames_per_s: float | None
    updates_per_s: float | None
    """Gradient steps per second."""
    staleness_p50: float | None
    """Mean over rows of the median number of updates between pull and push."""
    staleness_p95: float | None
    """Mean over rows of the 95 % quantile of the same number."""
    sync_share: float | None
    """The share of training time spent on exchange with other ranks and waiting for
    them."""
    eps: float | None
    """Median over rows of the environment slices per second that the learner learned
    from."""
    policy_lag: float | None
    """Mean over all rows: training events between the policy that acted and the
    learner's."""
    policy_lag_max: float | None
    """The most in any row."""
    actor_wait_share: float | None
    """Mean over all rows: the share of time that actors waited."""
    learner_wait_share: float | None
    """The share of training time that the learner waited."""


def throughput(rows: Sequence[Rows], training_of: Sequence[int]) -> Throughput:
    """The throughput of a Trial; `training_of` has the training of each Session. Speeds
    of workers add up. If one Session writes the rows of a training, they count the
    frames of all workers."""
    alone = [training_of.count(training) == 1 for training in training_of]
    frames = ["total_frame" if is_alone else "frame" for is_alone in alone]
    opt_steps = ["opt_step"] * len(rows)
    speeds = (
        _per_second(rows, training_of, frames),
        _per_second(rows, training_of, opt_steps),
    )
    reduced: dict[str, Callable[[FloatArray], float]]
    reduced = {"eps": np.nanmedian, "policy_lag_max": np.nanmax}
    columns = Throughput._fields[len(speeds) :]
    values = (
        _combined(rows, column, reduced.get(column, np.nanmean)) for column in columns
    )
    return Throughput(*speeds, *values)


def _per_second(
    rows: Sequence[Rows], training_of: Sequence[int], counts: Sequence[str]
) -> float | None:
    speeds: dict[int, float] = {}
    for table, training, count in zip(rows, training_of, counts, strict=True):
        if len(table) and table["wall_t"][-1] > 0:
            speed = float(table[count][-1] / table["wall_t"][-1])
            speeds[training] = speeds.get(training, 0.0) + speed
    if speeds:
        return float(np.mean(list(speeds.values())))
    return None


def _combined(
    rows: Sequence[Rows], column: str, what: Callable[[FloatArray], float]
) -> float | None:
    known = [
        table[column]
        for table in rows
        if column in table.columns and table.has_values(column)
    ]
    if known:
        return float(what(np.concatenate(known)))
    return None
