"""Population based training: the worst trials copy the best (arXiv:1711.09846)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.experiment.search.scheduler import Action, Decision, Scheduler
from slm_lab.experiment.search.space import draw, mutate
from slm_lab.metrics.trial_state import Params
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.spec.search import Dimension


@dataclass
class _Member:
    params: Params
    due: float
    """The frame of its next evaluation."""
    frame: int = 0
    score: float | None = None
    """The score at its last evaluation; after a copy the donor's."""
    is_own: bool = True
    """Whether the score is its own. A member with untried values is never a donor."""
    is_waiting: bool = True
    is_at_barrier: bool = False
    """Whether it waits for the others of its round."""


@final
class Population(Scheduler):
    """Evaluates a trial every `perturbation_interval` frames.

    A trial that is then among the worst continues from the weights of one of the best.
    It takes the donor's values, each resampled or perturbed. No trial is compared
    before all have a score.

    If all trials run at once, each is compared at its evaluation with the last scores
    of others. If some wait for room, trials take turns in rounds. A trial pauses at its
    evaluation until all of the round have reached theirs. Then the round is compared
    and the next one begins."""

    needs_all = True

    def __init__(
        self, spec: PbtSpec, dimensions: Sequence[Dimension], max_frame: int, seed: int
    ) -> None:
        self._spec = spec
        self._dimensions = dimensions
        interval = spec.perturbation_interval
        self._interval = max_frame / 10 if interval is None else interval
        self._max_frame = max_frame
        self._rng = np.random.default_rng(seed)
        self._live: dict[int, _Member] = {}

    @override
    def add(self, trial: int, params: Params) -> None:
        self._live[trial] = _Member(
            params, max(self._spec.burn_in_period, self._interval)
        )

    @override
    def begin(self, trial: int) -> None:
        self._live[trial].is_waiting = False

    @override
    def report(self, trial: int, frame: int, score: float) -> list[Decision]:
        if (member := self._live.get(trial)) is None:
            return []
        member.frame = frame
        if frame < member.due or frame >= self._max_frame:
            return []
        member.score, member.is_own, member.due = score, True, frame + self._interval
        if not any(each.is_waiting for each in self._live.values()):
            return self._copies([trial])
        member.is_at_barrier = member.is_waiting = True
        if not self._all_at_barrier():
            return [Decision(trial, Action.PAUSE)]
        decisions = self._next_round()
        if any(decision.donor == trial for decision in decisions):
            # the pause saves what is copied
            return [Decision(trial, Action.PAUSE), *decisions]
        if all(decision.trial != trial for decision in decisions):
            # the last trial of the round continues without a pause
            member.is_waiting = False
        return decisions

    @override
    def end(self, trial: int) -> list[Decision]:
        self._live.pop(trial, None)
        return self._next_round() if self._all_at_barrier() else []

    @override
    def choose(self, waiting: Sequence[int]) -> int | None:
        """The trial with the fewest frames that has not reached the end of the
        round."""
        live = self._live
        behind = [
            trial
            for trial in waiting
            if trial in live and not live[trial].is_at_barrier
        ]
        return min(behind, key=lambda trial: (live[trial].frame, trial), default=None)

    def _all_at_barrier(self) -> bool:
        return bool(self._live) and all(
            each.is_at_barrier for each in self._live.values()
        )

    def _next_round(self) -> list[Decision]:
        for each in self._live.values():
            each.is_at_barrier = False
        return self._copies(self._live)

    def _copies(self, candidates: Collection[int]) -> list[Decision]:
        scores = {t: m.score for t, m in self._live.items() if m.score is not None}
        if len(scores) < len(self._live):
            return []
        worst, best = self._quantiles(scores)
        takers = [trial for trial in worst if best and trial in candidates]
        return [self._copy(trial, int(self._rng.choice(best))) for trial in takers]

    def _quantiles(self, scores: Mapping[int, float]) -> tuple[list[int], list[int]]:
        """The worst trials, and the best trials that may be donors; no trial is
        both."""
        order = sorted(scores, key=lambda trial: (scores[trial], trial))
        count = int(np.ceil(self._spec.quantile_fraction * len(order)))
        count = min(count, len(order) // 2)
        others = [trial for trial in order[count:] if self._live[trial].is_own]
        return order[:count], others[-count:]

    def _copy(self, trial: int, donor: int) -> Decision:
        target, source = self._live[trial], self._live[donor]
        target.params = self._explored(source.params)
        target.score, target.is_own = source.score, False
        target.frame, target.due = source.frame, source.frame + self._interval
        return Decision(trial, Action.COPY, donor, target.params)

    def _explored(self, params: Params) -> Mapping[str, object]:
        found = {}
        for each in self._dimensions:
            if self._rng.random() < self._spec.resample_probability:
                found[each.path] = draw(each, self._rng)
            else:
                factor = float(self._rng.choice(self._spec.perturbation_factors))
                found[each.path] = mutate(each, params[each.path], factor, self._rng)
        return found
