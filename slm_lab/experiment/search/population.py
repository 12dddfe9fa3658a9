"""Population based training: the worst trials take over from the best (arXiv:1711.09846)."""

from collections.abc import Mapping, Sequence
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
    frame: int = 0
    score: float | None = None
    looked_at: float = 0.0
    is_waiting: bool = True


@final
class Population(Judge):
    """Looks at a trial every `perturbation_interval` frames.

    One that is then among the worst goes on from the weights of one of the best, with the values of
    that one, each drawn anew or changed a little. Where not all have room to run at once they take
    turns, a look at a time.
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
        self._live[trial] = _Member(point, looked_at=self._spec.burn_in_period)

    def begin(self, trial: int) -> None:
        """See `Judge`."""
        self._live[trial].is_waiting = False

    def report(self, trial: int, frame: int, score: float) -> list[Order]:
        """See `Judge`."""
        member = self._live.get(trial)
        if member is None:
            return []
        member.frame = frame
        if frame - member.looked_at < self._interval or frame >= self._max_frame:
            return []
        member.score, member.looked_at = score, frame
        worst, best = self._quantiles()
        lacks_room = any(each.is_waiting for each in self._live.values())
        if trial in worst:
            donor = int(self._rng.choice(best))
            point = self._explored(self._live[donor].point)
            member.point, member.score = point, None
            member.frame = member.looked_at = self._live[donor].frame
            member.is_waiting = lacks_room  # else it begins again at once, in the room it had
            return [Order(trial, What.COPY, donor, point)]
        if lacks_room:
            member.is_waiting = True
            return [Order(trial, What.PAUSE)]
        return []

    def end(self, trial: int) -> list[Order]:
        """See `Judge`."""
        self._live.pop(trial, None)
        return []

    def choose(self, waiting: Sequence[int]) -> int | None:
        """The one that is furthest behind, so that all are compared at about the same frames."""
        there = [trial for trial in waiting if trial in self._live]
        return min(there, key=lambda trial: (self._live[trial].frame, trial), default=None)

    def _quantiles(self) -> tuple[list[int], list[int]]:
        """The worst and the best of those that have been looked at; no trial is both."""
        scores = {t: m.score for t, m in self._live.items() if m.score is not None}
        order = sorted(scores, key=lambda trial: (scores[trial], trial))
        count = int(np.ceil(self._spec.quantile_fraction * len(order)))
        count = min(count, len(order) // 2)
        return order[:count], order[len(order) - count :]

    def _explored(self, point: Point) -> Mapping[str, object]:
        found = {}
        for each in self._dimensions:
            if self._rng.random() < self._spec.resample_probability:
                found[each.path] = draw(each, self._rng)
            else:
                factor = float(self._rng.choice(self._spec.perturbation_factors))
                found[each.path] = mutate(each, point[each.path], factor, self._rng)
        return found
