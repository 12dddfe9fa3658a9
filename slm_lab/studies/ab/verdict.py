"""Decides when a test of A against B ends, and what it then says. This is a function of
the final returns alone."""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, NamedTuple, final

import numpy as np
from pydantic import Field

from slm_lab.charts.confidence_sequence import ConfidenceSequence
from slm_lab.charts.statistics import Interval
from slm_lab.core.text import count_text, significant

_NEGLIGIBLE = 1e-6
"""Ends of an interval nearer to 0 than this share of the returns are shown as 0."""


class Answer(StrEnum):
    """How a test ends."""

    A = "A"
    """A is better."""
    B = "B"
    """B is better."""
    SAME = "same"
    """The difference is smaller than what matters."""
    UNKNOWN = "unknown"
    """The seeds that were allowed cannot tell."""


class StoppingRule(NamedTuple):
    """When a test of two variants ends before its last seed."""

    confidence: Annotated[float, Field(ge=0.5, lt=1)]
    """The chance, at least, that the interval of the difference is right."""
    smallest: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    """A difference in the final return that does not matter yet."""


@final
class Verdict:
    """What pairs of final returns show under a stopping rule."""

    def __init__(
        self, pairs: Sequence[tuple[float, float]], rule: StoppingRule, pairs_left: int
    ) -> None:
        """`pairs` are the returns of A and of B so far, `pairs_left` the number of
        pairs that may follow."""
        self._rule = rule
        self.pairs_left = pairs_left
        self.a, self.b = np.array(pairs, np.float64).reshape(-1, 2).T
        """The returns, (n,) each."""
        self._sequence = ConfidenceSequence(self.a, self.b, rule.confidence)

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.a)

    @cached_property
    def intervals(self) -> Interval:
        """The ends of the interval of B − A after each pair, (n,)."""
        return self._sequence.intervals

    @property
    def interval(self) -> tuple[float, float]:
        """The ends after all pairs; infinite while nothing is excluded."""
        if not self.pairs:
            return -math.inf, math.inf
        low, high = self.intervals
        return float(low[-1]), float(high[-1])

    @cached_property
    def further(self) -> int:
        """The fewest further pairs with which it could be answered; 0 if it is."""
        sequence = self._sequence
        ways = [sequence.pairs_to_exclude(0.0, direction) for direction in (1, -1)]
        smallest = self._rule.smallest
        if smallest is not None:
            below = sequence.pairs_to_exclude(-smallest, 1)
            above = sequence.pairs_to_exclude(smallest, -1)
            ways.append(max(below, above))
        return min(ways)

    @cached_property
    def answer(self) -> Answer | None:
        """The answer; None while one more pair may bring it."""
        if self._sequence.excludes(0.0, 1):
            return Answer.B
        if self._sequence.excludes(0.0, -1):
            return Answer.A
        if self.further == 0:
            return Answer.SAME
        if self.further > self.pairs_left:
            return Answer.UNKNOWN
        return None

    def sentence(self, allowed: int) -> str:
        """The answer in one sentence; `allowed` is the number of seeds that were
        allowed."""
        seeds = count_text(self.pairs, "seed")
        basis = (
            f"({self._rule.confidence * 100:g} %, {seeds} each; {allowed} were allowed)"
        )
        low, high = (self._shown(end) for end in self.interval)
        match self.answer:
            case Answer.B:
                return f"B is better by {_amount(low, high)} {basis}"
            case Answer.A:
                return f"A is better by {_amount(-high, -low)} {basis}"
            case Answer.SAME:
                smallest = significant(self._rule.smallest)
                return (
                    f"the difference is within ±{smallest}: B − A lies "
                    f"{_range(low, high)} {basis}"
                )
            case _:
                return f"not decided: B − A lies {_range(low, high)} {basis}"

    @property
    def progress(self) -> str:
        """What is known after the pairs so far, in a line."""
        low, high = (self._shown(end) for end in self.interval)
        seeds = count_text(self.pairs, "seed")
        return (
            f"after {seeds} of each, B − A lies {_range(low, high)}; at least "
            f"{self.further} more"
        )

    def _shown(self, end: float) -> float:
        largest = np.abs([*self.a, *self.b]).max(initial=0.0)
        if abs(end) <= _NEGLIGIBLE * largest:
            return 0.0
        return end


def verdict_of(
    pairs: Sequence[tuple[float, float] | None], rule: StoppingRule, allowed: int
) -> Verdict:
    """The verdict at the first of the pairs that answers, else after all; None is a
    pair without returns. So it does not depend on how many are trained at once."""
    for count in range(len(pairs) + 1):
        known = [pair for pair in pairs[:count] if pair is not None]
        verdict = Verdict(known, rule, pairs_left=allowed - count)
        if verdict.answer is not None:
            break
    return verdict


def _amount(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {significant(low)}"
    return f"{significant(low)} to {significant(high)}"


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "anywhere"
    if math.isinf(low):
        return f"below {significant(high)}"
    if math.isinf(high):
        return f"above {significant(low)}"
    return f"between {significant(low)} and {significant(high)}"
