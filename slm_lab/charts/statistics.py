"""Statistics over a few seeds of one or several tasks: arXiv:2108.13264 (Agarwal et al.
2021)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from slm_lab.core.types import FloatArray

RESAMPLES = 2000
"""Bootstrap samples, as many as the paper draws for its curves."""
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.96
"""Standard errors on each side of such an interval of a mean."""

Statistic: TypeAlias = Callable[[FloatArray], FloatArray]
"""A function of values (S, …) over S seeds; its result is (…)."""


class Interval(NamedTuple):
    """The ends of an interval, each (…)."""

    low: FloatArray
    high: FloatArray


def interquartile_mean(values: FloatArray) -> FloatArray:
    """Mean over the middle half of S seeds, §4.3 of arXiv:2108.13264; values (S, …),
    result (…). ⌊S/4⌋ are left out at each end, as in the paper's code: of fewer than
    four it is the mean."""
    count = len(values)
    cut = count // 4
    return np.sort(values, axis=0)[cut : count - cut].mean(axis=0)


def bootstrap_interval(
    values: FloatArray,
    statistic: Statistic,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    strata: Sequence[int] = (),
) -> Interval:
    """Percentile bootstrap interval of a statistic over S seeds; values (S, …), §4.1. A
    resample has the same seeds along a curve, and from each task as many as `strata`
    says, in order. One seed, or seeds that agree, give no width, which is no sign of
    certainty."""
    counts = np.array(strata or [len(values)])
    firsts = np.cumsum(counts) - counts
    tasks = zip(firsts, counts, strict=True)
    chosen = np.hstack(
        [first + generator.integers(n, size=(resamples, n)) for first, n in tasks]
    )
    points = values.reshape(len(values), -1).T
    ends = [_quantiles(statistic(point[chosen.T])) for point in points]
    low, high = np.transpose(ends)
    shape = values.shape[1:]
    return Interval(low.reshape(shape), high.reshape(shape))


def seeds_for_width(values: Sequence[float], width: float) -> int | None:
    """The number of seeds that should narrow the 95 % interval of the mean to `width`
    at each side. It is (1.96 s / width)² by the sample deviation s of `values` (S,), at
    least two. None for a single seed, and for a width of zero."""
    if len(values) < 2 or width <= 0:
        return None
    errors = NORMAL_QUANTILE * float(np.std(values, ddof=1)) / width
    return max(int(np.ceil(errors**2)), 2)


def difference_interval(
    x: FloatArray,
    y: FloatArray,
    generator: np.random.Generator,
    is_paired: bool,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile bootstrap interval of mean(x) − mean(y), of S values each. Pairs, x[i]
    with y[i], are resampled together; else both independently. Both ends are ()."""
    of_x = generator.integers(len(x), size=(resamples, len(x)))
    of_y = of_x
    if not is_paired:
        of_y = generator.integers(len(y), size=(resamples, len(y)))
    return _quantiles(x[of_x].mean(axis=1) - y[of_y].mean(axis=1))


def probability_of_improvement(
    x: Sequence[FloatArray], y: Sequence[FloatArray]
) -> float:
    """P(X > Y) for one more seed of each, where ties count by half. It is the
    Mann–Whitney U over its size, §4.3, as the mean over tasks. x has (S,) and y (S',)
    independent seeds of two algorithms for each task."""
    shares = [_wins(a[:, None], b[None, :]).mean() for a, b in zip(x, y, strict=True)]
    return float(np.mean(shares))


def improvement_interval(
    x: Sequence[FloatArray],
    y: Sequence[FloatArray],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile bootstrap interval of `probability_of_improvement`; x and y of each
    task are resampled independently, as strata. Both ends are ()."""
    shares = []
    for a, b in zip(x, y, strict=True):
        rows = generator.integers(len(a), size=(resamples, len(a), 1))
        columns = generator.integers(len(b), size=(resamples, 1, len(b)))
        shares.append(_wins(a[:, None], b[None, :])[rows, columns].mean(axis=(1, 2)))
    return _quantiles(np.mean(shares, axis=0))


def _wins(x: FloatArray, y: FloatArray) -> FloatArray:
    """1 where x is larger, ½ where they are equal."""
    return (x > y) + 0.5 * (x == y)


def _quantiles(of_resamples: FloatArray) -> Interval:
    low, high = np.quantile(
        of_resamples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0
    )
    return Interval(low, high)
