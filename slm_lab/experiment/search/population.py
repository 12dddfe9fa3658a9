"""Population based training: the worst trials take over from the best (arXiv:1711.09846)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from slm_lab.experiment.search.judge import Judge, Order, What
from slm_lab.experiment.search.record import Point
from slm_lab.experiment.search.space import draw, mutate
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.spec.search import Dimension


@dataclass
class _Member:
    point: Point
    due: float
    """The frame of its next look."""
    frame: int = 0
    score: float | None = None
    """At its last look; of one that has taken over, its donor's until its own next look."""
    is_own: bool = True
    """Whether the score is its own: nobody takes over from one whose values are untried."""
    is_waiting: bool = True
    has_come: bool = False
    """Whether it waits for the others of its round."""


@final
class Population(Judge):
    """Looks at a trial every `perturbation_interval` frames.

    One that is then among the worst goes on from the weights of one of the best, with the values of
    that one, each drawn anew or changed a little. Nobody is judged before all have a score.

    Where all have room at once, a trial is judged at its own look, by what the others had at
    theirs. Where some wait, all take turns: a trial pauses at its look until all others that are
    not over have come to theirs, then this round is judged as a whole and the next one begins. One
    that ends leaves the round, so that nobody waits for it.
    """

    needs_all = True

    def __init__(
        self, spec: PbtSpec, dimensions: Sequence[Dimension], max_frame: int, seed: int
    ) -> None:
        self._spec = spec
        self._dimensions = dimensions
        given = spec.perturbation_interval
        self._interval = max_frame / 10 if given is None else given
        self._max_frame = max_frame
        self._rng = np.random.default_rng(seed)
        self._live: dict[int, _Member] = {}

    def add(self, trial: int, point: Point) -> None:
        """See `Judge`."""
        self._live[trial] = _Member(point, max(self._spec.burn_in_period, self._interval))

    def begin(self, trial: int) -> None:
        """See `Judge`."""
        self._live[trial].is_waiting = False

    def report(self, trial: int, frame: int, score: float) -> list[Order]:
        """See `Judge`."""
        member = self._live.get(trial)
        if member is None:
            return []
        member.frame = frame
        if frame < member.due or frame >= self._max_frame:
            return []
        member.score, member.is_own, member.due = score, True, frame + self._interval
        if not any(each.is_waiting for each in self._live.values()):
            return self._copies([trial])
        member.has_come = member.is_waiting = True
        if not self._all_have_come():
            return [Order(trial, What.PAUSE)]
        orders = self._next_round()
        if any(order.donor == trial for order in orders):
            return [Order(trial, What.PAUSE), *orders]  # it saves what is taken over
        if all(order.trial != trial for order in orders):
            member.is_waiting = False  # the last to come goes on at once
        return orders

    def end(self, trial: int) -> list[Order]:
        """See `Judge`."""
        self._live.pop(trial, None)
        return self._next_round() if self._all_have_come() else []

    def choose(self, waiting: Sequence[int]) -> int | None:
        """The one that is furthest behind, of those that have not come to the end of the round."""
        live = self._live
        there = [trial for trial in waiting if trial in live and not live[trial].has_come]
        return min(there, key=lambda trial: (live[trial].frame, trial), default=None)

    def _all_have_come(self) -> bool:
        return bool(self._live) and all(each.has_come for each in self._live.values())

    def _next_round(self) -> list[Order]:
        """What becomes of the worst of the round that is over; all may run again."""
        for each in self._live.values():
            each.has_come = False
        return self._copies(self._live)

    def _copies(self, judged: Collection[int]) -> list[Order]:
        """Those of `judged` that are among the worst take over."""
        scores = {t: m.score for t, m in self._live.items() if m.score is not None}
        if len(scores) < len(self._live):
            return []
        worst, best = self._quantiles(scores)
        takers = [trial for trial in worst if best and trial in judged]
        return [self._copy(trial, int(self._rng.choice(best))) for trial in takers]

    def _quantiles(self, scores: Mapping[int, float]) -> tuple[list[int], list[int]]:
        """The worst, and the best that may be taken over from; no trial is both."""
        order = sorted(scores, key=lambda trial: (scores[trial], trial))
        count = int(np.ceil(self._spec.quantile_fraction * len(order)))
        count = min(count, len(order) // 2)
        others = [trial for trial in order[count:] if self._live[trial].is_own]
        return order[:count], others[-count:]

    def _copy(self, trial: int, donor: int) -> Order:
        taker, theirs = self._live[trial], self._live[donor]
        taker.point = self._explored(theirs.point)
        taker.score, taker.is_own = theirs.score, False
        taker.frame, taker.due = theirs.frame, theirs.frame + self._interval
        return Order(trial, What.COPY, donor, taker.point)

    def _explored(self, point: Point) -> Mapping[str, object]:
        found = {}
        for each in self._dimensions:
            if self._rng.random() < self._spec.resample_probability:
                found[each.path] = draw(each, self._rng)
            else:
                factor = float(self._rng.choice(self._spec.perturbation_factors))
                found[each.path] = mutate(each, point[each.path], factor, self._rng)
        return found
