"""Merges running statistics that several processes updated from the same values."""

import math
from collections.abc import Sequence

import numpy as np

from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.types import FloatArray


def require_finite(statistics: FloatArray) -> None:
    """Raises NonFiniteLossError if an environment's running statistics are not
    finite."""
    if not np.isfinite(statistics).all():
        raise NonFiniteLossError(
            "the running statistics of observations or rewards are not finite: the "
            "environment gave a number that is not"
        )


def merged(
    total: FloatArray,
    before: FloatArray,
    after: FloatArray,
    moments: Sequence[slice],
    share: float = 1.0,
    window: float = math.inf,
) -> FloatArray:
    """`total` merged with a process's update from `before` to `after`; all (S,), a new
    array. `moments` are the slices of running moments, [count, mean (D), M2 (D)] each;
    merged, they cover the samples of both. With a `window`, older samples count as at
    most that many, see `faded`. All other values are decaying averages, and move
    towards `after` by the fraction `share`. They stay between the two, as a variance
    must. If `total` equals `before`, the result equals `after` bitwise."""
    if np.array_equal(total, before):
        return after.copy()
    result: FloatArray = total + share * (after - total)
    for place in moments:
        result[place] = _merged_moments(
            total[place], before[place], after[place], window
        )
    return result


def faded(count: float, window: float) -> float:
    """The factor by which count and M2 over `count` samples shrink when new samples are
    added. So the count never exceeds the window by more than one batch."""
    if count:
        return min(1.0, window / count)
    return 1.0


def merged_by_all(
    before: FloatArray, afters: FloatArray, moments: Sequence[slice]
) -> FloatArray:
    """Merges the statistics `afters`, (W, S), of W processes that all had `before`,
    (S,). Running moments cover the samples of all processes; all other values become
    the mean. For W = 1 the result equals `afters[0]` bitwise. Returns a new array."""
    total = before
    for after in afters:
        total = merged(total, before, after, moments)
    result: FloatArray = afters.mean(0)
    for place in moments:
        result[place] = total[place]
    return result


def _merged_moments(
    total: FloatArray, before: FloatArray, after: FloatArray, window: float
) -> FloatArray:
    """Eq. 2.1 of Chan, Golub & LeVeque (1979), twice: for the new samples, and for all.

    With n counts, δ the difference of two means:

        mean = mean_a + δ n_b / n,   M2 = M2_a + M2_b + δ² n_a n_b / n"""
    if np.array_equal(before, after):
        return total.copy()
    size = len(total) // 2
    total, before = (_scaled(moments, size, window) for moments in (total, before))
    n = float(total[0])
    n_before = float(before[0])
    n_after = float(after[0])
    n_new = n_after - n_before
    if n_new <= 0:
        return total.copy()
    mean = slice(1, 1 + size)
    m2 = slice(1 + size, None)
    # new samples' mean − mean before
    shift = (after[mean] - before[mean]) * (n_after / n_new)
    new_m2 = after[m2] - before[m2] - shift * shift * (n_before * n_new / n_after)
    delta = before[mean] + shift - total[mean]
    result = np.empty_like(total)
    result[0] = n + n_new
    result[mean] = total[mean] + delta * (n_new / (n + n_new))
    result[m2] = (
        total[m2] + np.maximum(new_m2, 0) + delta * delta * (n * n_new / (n + n_new))
    )
    return result


def _scaled(moments: FloatArray, size: int, window: float) -> FloatArray:
    """Moments with older samples weighted less, see `faded`."""
    part = faded(float(moments[0]), window)
    return np.asarray(moments * np.repeat([part, 1.0, part], [1, size, size]))
