"""Schedulers decide which trials of a search continue: all, or as a Ray Tune scheduler
says.

Like a searcher, a scheduler is a deterministic function of its seed and the sequence of
events."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from typing_extensions import override

from slm_lab.metrics.trial_state import Params
from slm_lab.spec.schema.scheduler import AshaSpec, HyperBandSpec, MedianStoppingSpec
from slm_lab.studies.search.searcher import SCORE
from slm_lab.studies.study import Decision, Intervention

if TYPE_CHECKING:
    from ray.tune.schedulers.trial_scheduler import TrialScheduler

TIME = "time"
"""Tune's name for the budget that a trial has spent."""
COMMON: dict[str, Any] = {"time_attr": TIME, "metric": SCORE, "mode": "max"}
"""Arguments of every scheduler of Tune."""


class Scheduler(ABC):
    """Receives the events of trials, and returns decisions about them."""

    needs_all: bool = False
    """Whether all trials must be added before the first begins."""

    def add(self, trial: int, params: Params) -> None:
        """A trial was proposed."""

    def begin(self, trial: int) -> None:
        """A trial started to run."""

    def report(self, trial: int, frame: int, score: float) -> list[Decision]:
        """A trial reported a score."""
        return []

    def end(self, trial: int) -> list[Decision]:
        """A trial finished or failed."""
        return []

    @abstractmethod
    def choose(self, waiting: Sequence[int]) -> int | None:
        """The waiting or paused trial to run next; None if none may run yet."""


@final
class NoScheduler(Scheduler):
    """Runs all trials to their end, in order."""

    @override
    def choose(self, waiting: Sequence[int]) -> int | None:
        return next(iter(waiting), None)


@dataclass(eq=False)
class _Trial:
    """The attributes of a trial that Tune's schedulers read."""

    trial_id: str
    status: str = "PENDING"
    is_saving: bool = False


@final
class Tune(Scheduler):
    """Wraps a scheduler of Ray Tune. This object replaces Tune's controller: schedulers
    call its methods without a docstring."""

    def __init__(
        self, tune_scheduler: "TrialScheduler", unit: float, seed: int
    ) -> None:
        from ray.tune.schedulers import HyperBandScheduler

        # Any: the methods are typed for Tune's own controller and trials.
        self._tune_scheduler: Any = tune_scheduler
        self._with_brackets = isinstance(tune_scheduler, HyperBandScheduler)
        # else the first trial would fill a bracket alone
        self.needs_all = self._with_brackets
        self._unit = unit
        self._seed = seed
        self._calls = 0
        self._trials: dict[int, _Trial] = {}
        self._decisions: list[Decision] = []

    @override
    def add(self, trial: int, params: Params) -> None:
        self._trials[trial] = _Trial(str(trial))
        with self._drawing():
            self._tune_scheduler.on_trial_add(self, self._trials[trial])

    @override
    def begin(self, trial: int) -> None:
        self._trials[trial].status = "RUNNING"

    @override
    def report(self, trial: int, frame: int, score: float) -> list[Decision]:
        state = self._trials[trial]
        if state.status != "RUNNING":
            return []
        result = {TIME: frame / self._unit, SCORE: score}
        with self._drawing():
            verdict = self._tune_scheduler.on_trial_result(self, state, result)
        if verdict == self._tune_scheduler.PAUSE:
            state.status = "PAUSED"
            self._decisions.append(Decision(trial, Intervention.PAUSE))
        elif verdict == self._tune_scheduler.STOP:
            self._end(state)
            self._decisions.append(Decision(trial, Intervention.STOP))
        return self._taken()

    @override
    def end(self, trial: int) -> list[Decision]:
        state = self._trials[trial]
        if state.status != "TERMINATED":
            self._end(state)
        return [decision for decision in self._taken() if decision.trial != trial]

    @override
    def choose(self, waiting: Sequence[int]) -> int | None:
        chosen = self._tune_scheduler.choose_trial_to_run(self)
        number = None
        if chosen is not None:
            number = int(chosen.trial_id)
        if number in waiting:
            return number
        return None

    def get_trials(self) -> list[_Trial]:  # noqa: D102 - Tune's
        return list(self._trials.values())

    def get_live_trials(self) -> list[_Trial]:  # noqa: D102 - Tune's
        # With live trials the median rule would pause trials in turn; each turn starts
        # processes.
        return []

    def stop_trial(self, trial: _Trial) -> None:  # noqa: D102 - Tune's
        self._end(trial)
        self._decisions.append(Decision(int(trial.trial_id), Intervention.STOP))

    def _end(self, trial: _Trial) -> None:
        """Ends a trial without `on_trial_complete`, in which some schedulers decide
        once more."""
        trial.status = "TERMINATED"
        if self._with_brackets:
            with self._drawing():
                self._tune_scheduler.on_trial_remove(self, trial)

    def _taken(self) -> list[Decision]:
        decisions = self._decisions
        self._decisions = []
        return decisions

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Seeds the global generators, which Tune's schedulers use, and restores them
        after."""
        self._calls += 1
        seeds = np.random.SeedSequence(
            self._seed, spawn_key=(self._calls,)
        ).generate_state(2)
        python_state = random.getstate()
        numpy_state = np.random.get_state()  # noqa: NPY002
        random.seed(int(seeds[0]))
        np.random.seed(int(seeds[1]))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def tune_scheduler(
    spec: AshaSpec | HyperBandSpec | MedianStoppingSpec, max_frame: int, seed: int
) -> Tune:
    """Asynchronous successive halving, HyperBand or the median stopping rule. HyperBand
    counts in grace periods: it makes a bracket for every power of the reduction factor
    below `max_t`."""
    from ray.tune.schedulers import (
        AsyncHyperBandScheduler,
        HyperBandScheduler,
        MedianStoppingRule,
    )

    if spec.name == "median_stopping":
        grace = max_frame / 10 if spec.grace_period is None else spec.grace_period
        samples = spec.min_samples_required
        rule = MedianStoppingRule(
            **COMMON, grace_period=grace, min_samples_required=samples
        )
        return Tune(rule, 1.0, seed)
    top = spec.max_t if spec.max_t is not None else max_frame
    factor = spec.reduction_factor
    grace = top / factor**2 if spec.grace_period is None else spec.grace_period
    if spec.name == "hyperband":
        brackets = max(round(top / grace), 1)
        bands = HyperBandScheduler(**COMMON, max_t=brackets, reduction_factor=factor)
        return Tune(bands, grace, seed)
    asha = AsyncHyperBandScheduler(
        **COMMON,
        max_t=top,  # type: ignore[arg-type]
        grace_period=grace,  # type: ignore[arg-type]
        reduction_factor=factor,
        brackets=spec.brackets,
        stop_last_trials=spec.stop_last_trials,
    )
    return Tune(asha, 1.0, seed)
