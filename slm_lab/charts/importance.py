"""The share of the differences between Trials of a search that each variable
explains."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slm_lab.charts.search_summary import SearchSummary, identity, numeric
from slm_lab.core.types import FloatArray, IntArray
from slm_lab.metrics.trial_state import TrialState
from slm_lab.spec.search import Dimension

FEWEST_TRIALS = 5
"""The fewest Trials whose differences can be distinguished from chance."""
RISK = 0.05
"""Family-wise false-positive rate."""
SHUFFLES = 499

_COMPARABLE = ("finished", "stopped")
_WIDTHS = (0.15, 0.4, math.inf)
"""The widths of the kernel, as shares of the Trials: a bend, a slow turn, a straight
line."""
_STEADY = 1e-3
"""The share of the kernel's mass that is added to its spread. So neighbours at one
place get a mean, not a slope."""
_SEED = 0


class Importance(NamedTuple):
    """The importance of one variable: the `share` of the variation of the Trials' ranks
    that it explains alone. A variable without any effect stays below `chance` in 95 %
    of all searches like this one. `p_value` is how often it gets as high; `sure` is
    whether chance is ruled out. They are None where `reason` says why. `trials` is the
    number of Trials."""

    path: str
    trials: int
    share: float | None = None
    chance: float | None = None
    p_value: float | None = None
    sure: bool = False
    reason: str = ""


def importances(experiment: SearchSummary) -> list[Importance]:
    """One for each variable, the most important first, those without a number last.

    The share is the skill with which the rank of a Trial follows from this variable
    alone:

        skill = 1 − Σ_i (r_i − r̂_{−i}(x_i))² / Σ_i (r_i − r̄_{−i})²

    r̂ is a line fitted locally over the ranks of numbers (Cleveland 1979, J. Am. Stat.
    Assoc. 74: 829), else the mean of equal values. Shuffled ranks give chance and the
    p-value (Altmann et al. 2010, doi:10.1093/bioinformatics/btq134), Holm's rule
    `sure`. Trials that were stopped early rank behind those that finished, by frames.
    docs/metrics.md gives the reasons."""
    trials = [trial for trial in experiment.trials if comparable(trial)]
    tested = [_importance(variable, trials) for variable in experiment.variables]
    ranking = _apply_holm(tested)
    ranking.sort(
        key=lambda importance: (importance.share is None, -(importance.share or 0.0))
    )
    return ranking


def comparable(trial: TrialState) -> bool:
    """Whether it has a place among the others."""
    return trial.status in _COMPARABLE and trial.known_score is not None


def trial_ranks(trials: Sequence[TrialState]) -> FloatArray:
    """(n,): the rank of each among comparable Trials, the best highest; equal Trials
    share the mean of their ranks."""
    keys = []
    for trial in trials:
        is_finished = trial.status == "finished"
        frame = trial.frame * (not is_finished)
        keys.append((is_finished, frame, trial.known_score or 0.0))
    order = {key: i for i, key in enumerate(sorted(set(keys)))}
    return midranks(np.array([order[key] for key in keys], np.float64))


def midranks(values: FloatArray) -> FloatArray:
    """(n,): ranks from 0 to 1; equal values share the mean of their ranks."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count + 1) / 2
    return middle[which] / max(len(values) - 1, 1)


def _importance(variable: Dimension, trials: Sequence[TrialState]) -> Importance:
    path = variable.path
    trials = [trial for trial in trials if path in trial.params]
    known = Importance(path, len(trials))
    if len(trials) < FEWEST_TRIALS:
        have = f"{len(trials)} trials have"
        if len(trials) == 1:
            have = "1 trial has"
        return known._replace(
            reason=f"{have} a result to compare, it takes {FEWEST_TRIALS}"
        )
    values = [trial.params[path] for trial in trials]
    if len({identity(value) for value in values}) == 1:
        return known._replace(reason="all trials have the same value")
    ranks = trial_ranks(trials)
    if np.ptp(ranks) == 0:
        return known._replace(reason="all trials have the same score")
    shuffle = np.random.default_rng(_SEED).permutation
    shuffled = [shuffle(ranks) for _ in range(SHUFFLES)]
    targets = np.column_stack([ranks, *shuffled])
    skills = [skill(forecaster, targets) for forecaster in _forecasters(values)]
    actual, *by_chance = np.max(skills, axis=0)
    mean = float(np.mean(by_chance))
    limit = float(np.quantile(by_chance, 0.95))
    as_good = np.sum(np.array(by_chance) >= actual)
    return known._replace(
        share=max(0.0, float(actual - mean) / (1 - mean)),
        chance=max(0.0, (limit - mean) / (1 - mean)),
        p_value=float((1 + as_good) / (1 + SHUFFLES)),
    )


def _apply_holm(importances: Sequence[Importance]) -> list[Importance]:
    """The importances, `sure` where chance is ruled out for this variable and all with
    a smaller p-value."""
    tested = [
        importance.p_value
        for importance in importances
        if importance.p_value is not None
    ]
    limit = -1.0
    for passed, p_value in enumerate(sorted(tested)):
        if p_value * (len(tested) - passed) > RISK:
            break
        limit = p_value
    return [
        importance._replace(
            sure=importance.p_value is not None and importance.p_value <= limit
        )
        for importance in importances
    ]


def skill(forecaster: FloatArray, targets: FloatArray) -> FloatArray:
    """(P,) how much better the forecaster (n, n) predicts a target than the mean of the
    other targets does. It has one number for each column of `targets` (n, P)."""
    n = len(targets)
    missed = ((targets - forecaster @ targets) ** 2).sum(axis=0)
    by_mean = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0) * (n / (n - 1)) ** 2
    return 1 - missed / by_mean


def _forecasters(values: Sequence[Any]) -> list[FloatArray]:
    """Matrices (n, n) with a zero diagonal that predict each Trial by a mean of the
    others."""
    if numeric(values):
        ranks = midranks(np.array(values, np.float64))
        return [local_line(ranks, width) for width in _WIDTHS]
    names = [identity(value) for value in values]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return [same_value(np.array([number[name] for name in names]))]


def local_line(x: FloatArray, width: float) -> FloatArray:
    """Weighted least squares of a line around each x_i, evaluated there, without Trial
    i."""
    distance = x[None, :] - x[:, None]
    weight = np.exp(-0.5 * (distance / width) ** 2)
    np.fill_diagonal(weight, 0.0)
    mass, first, second = ((weight * distance**power).sum(axis=1) for power in range(3))
    second = second + _STEADY * mass
    lines = weight * (second[:, None] - distance * first[:, None])
    return lines / (mass * second - first**2)[:, None]


def same_value(kind: IntArray) -> FloatArray:
    """The mean of the other Trials of a kind; the mean of all others counts as one
    more."""
    same = (kind[:, None] == kind[None, :]).astype(np.float64)
    np.fill_diagonal(same, 0.0)
    others = (1 - np.eye(len(kind))) / (len(kind) - 1)
    return (same + others) / (same.sum(axis=1, keepdims=True) + 1)
