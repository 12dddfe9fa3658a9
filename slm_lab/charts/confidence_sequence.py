"""A confidence sequence for the effect of B over A, from pairs of final returns.

It may be looked at after every pair. The chance that it ever leaves out the true effect
is at most 1 − confidence. So a test may stop as soon as it shows something.

It bets, as §4 of arXiv:2010.09686 (Waudby-Smith and Ramdas 2024) does for bounded
values. Returns have no bounds that are known before. Instead the differences are
assumed to be symmetric about the effect (§5 of arXiv:2009.03167, Ramdas, Ruf, Larsson
and Koolen 2020). Where A and B are the same, this is no assumption: swapping the two
returns of a pair changes nothing.

For an effect θ, a bet on the pair i multiplies a wealth of 1 by 1 + g_i with

    g_i = CAP tanh(κ (d_i − θ) / s_i),   d_i = b_i − a_i,

where s_i is the deviation of d that the pairs before i predict. g_i is odd in d_i − θ,
so its mean is 0 if θ is the effect. The wealth is then a martingale. The chance that it
ever reaches 2 / (1 − confidence) is at most (1 − confidence) / 2 (Ville's inequality).
A θ whose wealth reaches it is excluded. The other half is for the bets −g_i, on a
smaller effect. The wealth falls with θ, so the effects that are left are an interval.
"""

import math
from typing import Literal, TypeAlias, final

import numpy as np

from slm_lab.charts.statistics import CONFIDENCE, Interval
from slm_lab.core.types import FloatArray

Direction: TypeAlias = Literal[1, -1]
"""What is bet on: 1, an effect above θ; -1, one below."""

SLOPES = np.array([0.5, 1.5])
"""κ of the bets, whose wealths are averaged. For normal differences a κ near the
effect, in deviations, is best. There tanh(κ z) is the bet of the likelihood ratio."""
CAP = 0.95
"""The largest bet: a share of the wealth. The rest survives a bad guess of s_i."""
OPENING = 0.8
"""The bet on the sign alone, while no s_i is known: on the first two pairs. With it six
pairs can reach 95 %."""
_FIRST_SCALED = 2
"""The first pair, from 0, that has two pairs before it."""
_PRECISION = 1e-9
"""The precision of an end of the interval, in units of the spread of the returns."""


@final
class ConfidenceSequence:
    """The interval after each of n pairs with final returns a and b, (n,) each."""

    def __init__(
        self, a: FloatArray, b: FloatArray, confidence: float = CONFIDENCE
    ) -> None:
        self.pairs = len(a)
        self._differences = b - a
        self._scales = _expected_deviations(a, b)
        # each direction may err with half of the chance
        self._goal = math.log(2 / (1 - confidence))
        returns = np.concatenate([a, b, np.zeros(1)])
        self._spread = float(np.ptp(returns)) or 1.0

    @property
    def intervals(self) -> Interval:
        """The ends after each pair, (n,). The interval never widens. An end is infinite
        while nothing is excluded on its side. If the differences are not symmetric, the
        ends may cross: then no effect is left."""
        ends = [self._ends(direction) for direction in (1, -1)]
        return Interval(*ends)

    def excludes(self, effect: float, direction: Direction) -> bool:
        """Whether `effect` is too small (direction 1) or too large (-1) after any of
        the pairs."""
        return bool((self._log_wealth(effect, direction) >= self._goal).any())

    def pairs_to_exclude(self, effect: float, direction: Direction) -> int:
        """The fewest further pairs that can exclude `effect` in a direction; 0 if it is
        excluded."""
        if self.excludes(effect, direction):
            return 0
        wealth = [0.0, *self._log_wealth(effect, direction)]
        missing = self._goal - wealth[-1]
        further = 0
        while missing > 0:
            is_scaled = self.pairs + further >= _FIRST_SCALED
            missing -= math.log1p(CAP if is_scaled else OPENING)
            further += 1
        return further

    def _log_wealth(self, effect: float, direction: Direction) -> FloatArray:
        """(n,): the logarithm of the wealth after each pair, for bets in a
        direction."""
        distances = direction * (self._differences - effect)
        is_known = self._scales > 0
        units = distances / np.where(is_known, self._scales, 1.0)
        bets = np.where(
            is_known,
            CAP * np.tanh(SLOPES[:, None] * units),
            OPENING * np.sign(distances),
        )
        paths = np.cumsum(np.log1p(bets), axis=1)
        mean: FloatArray = np.logaddexp.reduce(paths, axis=0) - math.log(len(SLOPES))
        return mean

    def _ends(self, direction: Direction) -> FloatArray:
        """(n,): after each pair, the last effect that is excluded in a direction."""
        ends = np.full(self.pairs, -direction * math.inf)
        largest = np.where(self._scales > 0, CAP, OPENING)
        could_exclude = np.cumsum(np.log1p(largest)) >= self._goal
        outside = -direction * math.inf
        for place in np.flatnonzero(could_exclude):
            outside = self._last_excluded(int(place) + 1, direction, outside)
            ends[place] = outside
        return ends

    def _last_excluded(self, count: int, direction: Direction, known: float) -> float:
        """The last effect that the first `count` pairs exclude in a direction, by
        bisection; `known` is one, or infinite."""

        def is_excluded(effect: float) -> bool:
            wealth = self._log_wealth(effect, direction)[:count]
            return bool(wealth.max() >= self._goal)

        # beyond all differences every bet on this direction loses
        inside = direction * float((direction * self._differences[:count]).max())
        outside = known
        step = self._spread
        while math.isinf(outside) or not is_excluded(outside):
            outside = inside - direction * step
            step *= 2
        while abs(inside - outside) > _PRECISION * self._spread:
            middle = outside / 2 + inside / 2
            if is_excluded(middle):
                outside = middle
            else:
                inside = middle
        return outside


def _expected_deviations(a: FloatArray, b: FloatArray) -> FloatArray:
    """(n,) the deviation of each pair's difference that the earlier pairs predict. The
    variances of A and of B are added, as if their seeds were independent. 0 where it is
    unknown."""
    before = np.arange(len(a))
    is_known = before >= _FIRST_SCALED
    count = np.maximum(before, _FIRST_SCALED)
    variance = np.zeros(len(a))
    for values in (a, b):
        moved = values - values[:1]
        sums = np.cumsum(moved) - moved
        squares = np.cumsum(moved**2) - moved**2
        variance += (squares - sums**2 / count) / (count - 1)
    return np.sqrt(np.where(is_known, np.maximum(variance, 0.0), 0.0))
