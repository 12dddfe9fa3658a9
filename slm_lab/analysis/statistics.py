"""Statistics over a few seeds of one task: arXiv:2108.13264 (Agarwal et al. 2021)."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from slm_lab.core.types import FloatArray

RESAMPLES = 2000
"""Bootstrap samples, as many as the paper draws for its curves."""
LEVEL = 0.95
"""Of an interval."""
_AT_ONCE = 2_000_000
"""The most numbers that a bootstrap holds in memory, unless one point needs more."""

Statistic: TypeAlias = Callable[[FloatArray], FloatArray]
"""From (S, …) values over seeds to (…)."""


class Interval(NamedTuple):
    """The ends of a confidence interval, each (…)."""

    low: FloatArray
    high: FloatArray


def interquartile_mean(values: FloatArray) -> FloatArray:
    """Mean over the middle half of S seeds, §4.3 of arXiv:2108.13264; values (S, …), result (…).
    ⌊S/4⌋ are left out at each end, as in the paper's code: with fewer than four seeds it is the
    mean."""
    count = len(values)
    cut = count // 4
    mean: FloatArray = np.sort(values, axis=0)[cut : count - cut].mean(axis=0)
    return mean


def bootstrap_interval(
    values: FloatArray,
    statistic: Statistic,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile bootstrap interval of a statistic over S seeds; values (S, …), §4.1. A resample
    has the same seeds at every point of a curve. One seed, or seeds that agree, give no width,
    which is no sign of certainty."""
    seeds = len(values)
    chosen = generator.integers(seeds, size=(resamples, seeds))
    flat = values.reshape(seeds, -1)
    points = max(_AT_ONCE // chosen.size, 1)
    parts = [
        _quantiles(statistic(flat[:, at : at + points][chosen.T]))
        for at in range(0, flat.shape[1], points)
    ]
    shape = values.shape[1:]
    low, high = (np.concatenate(ends).reshape(shape) for ends in zip(*parts, strict=True))
    return Interval(low, high)


def probability_of_improvement(x: FloatArray, y: FloatArray) -> float:
    """P(X > Y) of one more seed each, ties by half: the Mann–Whitney U over its size, §4.3. x (S,)
    and y (S',) are independent seeds of two algorithms."""
    return float(_wins(x[:, None], y[None, :]).mean())


def improvement_interval(
    x: FloatArray,
    y: FloatArray,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile bootstrap interval of `probability_of_improvement`; x and y are resampled
    independently, as strata. Both ends are ()."""
    wins = _wins(x[:, None], y[None, :])
    rows = generator.integers(len(x), size=(resamples, len(x), 1))
    columns = generator.integers(len(y), size=(resamples, 1, len(y)))
    return _quantiles(wins[rows, columns].mean(axis=(1, 2)))


def _wins(x: FloatArray, y: FloatArray) -> FloatArray:
    """1 where x is larger, ½ where they are equal."""
    wins: FloatArray = (x > y) + 0.5 * (x == y)
    return wins


def _quantiles(of_resamples: FloatArray) -> Interval:
    """Of (B, …) statistics."""
    low, high = np.quantile(of_resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Interval(low, high)
