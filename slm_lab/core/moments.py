"""Merging running statistics that several processes went on with from the same values."""

import math
from collections.abc import Sequence

import numpy as np

from slm_lab.core.types import FloatArray


def merged(
    total: FloatArray,
    before: FloatArray,
    after: FloatArray,
    moments: Sequence[slice],
    share: float = 1.0,
    window: float = math.inf,
) -> FloatArray:
    """What `total` becomes when someone has gone from `before` to `after`; all (S,), new.

    `moments` are the places of running moments, [count, mean (D), M2 (D)] each: they become those
    of all that both have seen; with a `window` what was before counts as that many samples at most,
    see `faded`. Everything else, running averages that decay, moves towards `after`
    by that `share` of the way: it stays between the two, as a variance must. Where `total` is still
    what it was before, the result is `after`, to the last bit.
    """
    if np.array_equal(total, before):
        return after.copy()
    result: FloatArray = total + share * (after - total)
    for place in moments:
        result[place] = _merged_moments(total[place], before[place], after[place], window)
    return result


def faded(count: float, window: float) -> float:
    """The part of moments over `count` samples that is kept when new ones come: count and M2 are
    multiplied by it. So the count never exceeds the window by more than one batch."""
    return min(1.0, window / count) if count else 1.0


def merged_by_all(before: FloatArray, afters: FloatArray, moments: Sequence[slice]) -> FloatArray:
    """What W processes that all had `before`, (S,), have together after `afters`, (W, S); new.

    Running moments become those of all that any of them has seen, everything else the mean. Where
    W is 1, it is what that one has, to the last bit.
    """
    together = before
    for after in afters:
        together = merged(together, before, after, moments)
    result: FloatArray = afters.mean(0)
    for place in moments:
        result[place] = together[place]
    return result


def _merged_moments(
    total: FloatArray, before: FloatArray, after: FloatArray, window: float
) -> FloatArray:
    """Eq. 2.1 of Chan, Golub & LeVeque (1979), twice: what is new, and all together.

    With n counts, δ the difference of two means:

        mean = mean_a + δ n_b / n,   M2 = M2_a + M2_b + δ² n_a n_b / n
    """
    if np.array_equal(before, after):
        return total.copy()
    size = len(total) // 2
    total, before = (_scaled(moments, size, window) for moments in (total, before))
    n, n_before, n_after = float(total[0]), float(before[0]), float(after[0])
    n_new = n_after - n_before
    if n_new <= 0:
        return total.copy()
    mean, m2 = slice(1, 1 + size), slice(1 + size, None)
    shift = (after[mean] - before[mean]) * (n_after / n_new)  # mean of what is new − mean before
    new_m2 = after[m2] - before[m2] - shift * shift * (n_before * n_new / n_after)
    delta = before[mean] + shift - total[mean]
    result = np.empty_like(total)
    result[0] = n + n_new
    result[mean] = total[mean] + delta * (n_new / (n + n_new))
    result[m2] = total[m2] + np.maximum(new_m2, 0) + delta * delta * (n * n_new / (n + n_new))
    return result


def _scaled(moments: FloatArray, size: int, window: float) -> FloatArray:
    """Moments in which older samples count less, see `faded`."""
    part = faded(float(moments[0]), window)
    return np.asarray(moments * np.repeat([part, 1.0, part], [1, size, size]))
