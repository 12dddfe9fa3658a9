"""Which trials of a search go on: nobody judges, or a scheduler of Ray Tune does.

A judge is a function of its seed and of what it was told, in that order, as an engine is.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, final

import numpy as np
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler, MedianStoppingRule
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from slm_lab.experiment.search.engine import SCORE
from slm_lab.experiment.search.record import Point
from slm_lab.spec.schema.scheduler import AshaSpec, HyperBandSpec, MedianStoppingSpec

TIME = "time"
"""What a trial has spent, as Tune's schedulers call it."""


class What(StrEnum):
    """What becomes of a trial."""

    STOP = "stop"
    PAUSE = "pause"
    COPY = "copy"


@final
@dataclass(frozen=True)
class Order:
    """What is to be done with a trial: end it, save it and let others run, or have it go on from
    the weights of `donor` with the values of `point`."""

    trial: int
    what: What
    donor: int = -1
    point: Point = field(default_factory=dict)


class Judge(ABC):
    """Hears what trials report, and gives orders."""

    needs_all: bool = False
    """Whether it has to know all trials before the first begins."""

    def add(self, trial: int, point: Point) -> None:
        """A trial that has yet to begin."""

    def begin(self, trial: int) -> None:
        """A trial that runs from now on."""

    def report(self, trial: int, frame: int, score: float) -> list[Order]:
        """What a trial has reached."""
        return []

    def end(self, trial: int) -> list[Order]:
        """A trial that has come to its end, or failed."""
        return []

    @abstractmethod
    def choose(self, waiting: Sequence[int]) -> int | None:
        """Which of the trials that wait or pause is to run next; None where none may yet."""


@final
class Nobody(Judge):
    """All go on, in their order."""

    def choose(self, waiting: Sequence[int]) -> int | None:
        """See `Judge`."""
        return waiting[0] if waiting else None


@dataclass(eq=False)
class _Trial:
    """What Tune's schedulers look at of a trial."""

    trial_id: str
    status: str = "PENDING"
    is_saving: bool = False

    @property
    def number(self) -> int:
        return int(self.trial_id)


@final
class Tune(Judge):
    """A scheduler of Ray Tune. This object stands in for Tune's controller, of which schedulers
    call the methods without a docstring here."""

    def __init__(self, scheduler: TrialScheduler, unit: float, seed: int) -> None:
        self._scheduler: Any = scheduler  # whose methods ask for Tune's controller and trials
        self._with_brackets = isinstance(scheduler, HyperBandScheduler)
        self.needs_all = self._with_brackets  # else each would be full with the first that comes
        self._unit = unit
        self._seed = seed
        self._calls = 0
        self._trials: dict[int, _Trial] = {}
        self._orders: list[Order] = []

    def add(self, trial: int, point: Point) -> None:
        """See `Judge`."""
        self._trials[trial] = _Trial(str(trial))
        with self._drawing():
            self._scheduler.on_trial_add(self, self._trials[trial])

    def begin(self, trial: int) -> None:
        """See `Judge`."""
        self._trials[trial].status = "RUNNING"

    def report(self, trial: int, frame: int, score: float) -> list[Order]:
        """See `Judge`."""
        its = self._trials[trial]
        if its.status != "RUNNING":
            return []
        result = {TIME: frame / self._unit, SCORE: score}
        with self._drawing():
            verdict = self._scheduler.on_trial_result(self, its, result)
        if verdict == TrialScheduler.PAUSE:
            its.status = "PAUSED"
            self._orders.append(Order(trial, What.PAUSE))
        elif verdict == TrialScheduler.STOP:
            self._end(its)
            self._orders.append(Order(trial, What.STOP))
        return self._taken()

    def end(self, trial: int) -> list[Order]:
        """See `Judge`."""
        its = self._trials[trial]
        if its.status != "TERMINATED":
            self._end(its)
        return [order for order in self._taken() if order.trial != trial]

    def choose(self, waiting: Sequence[int]) -> int | None:
        """See `Judge`."""
        chosen = self._scheduler.choose_trial_to_run(self)
        return chosen.number if chosen is not None and chosen.number in waiting else None

    def get_trials(self) -> list[_Trial]:  # noqa: D102 - Tune's
        return list(self._trials.values())

    def get_live_trials(self) -> list[_Trial]:  # noqa: D102 - Tune's
        # The median rule would have trials take turns, each a start of processes.
        return []

    def stop_trial(self, trial: _Trial) -> None:  # noqa: D102 - Tune's
        self._end(trial)
        self._orders.append(Order(trial.number, What.STOP))

    def _end(self, trial: _Trial) -> None:
        """`on_trial_complete` is not told: some schedulers judge by it once more."""
        trial.status = "TERMINATED"
        if self._with_brackets:
            with self._drawing():
                self._scheduler.on_trial_remove(self, trial)

    def _taken(self) -> list[Order]:
        orders, self._orders = self._orders, []
        return orders

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Schedulers draw from the generators that all share: for a moment these are ours."""
        self._calls += 1
        seeds = np.random.SeedSequence(self._seed, spawn_key=(self._calls,)).generate_state(2)
        ours, shared = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(int(seeds[0]))
        np.random.seed(int(seeds[1]))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(shared)  # noqa: NPY002


def asha(spec: AshaSpec, max_frame: int, seed: int) -> Judge:
    """Asynchronous successive halving."""
    top = max_frame if spec.max_t is None else spec.max_t
    grace = top / spec.reduction_factor**2 if spec.grace_period is None else spec.grace_period
    scheduler = AsyncHyperBandScheduler(
        time_attr=TIME,
        metric=SCORE,
        mode="max",
        max_t=top,  # type: ignore[arg-type]
        grace_period=grace,  # type: ignore[arg-type]
        reduction_factor=spec.reduction_factor,
        brackets=spec.brackets,
        stop_last_trials=spec.stop_last_trials,
    )
    return Tune(scheduler, 1.0, seed)


def hyperband(spec: HyperBandSpec, max_frame: int, seed: int) -> Judge:
    """HyperBand, whose unit of time is the grace period: it makes a bracket of every power of the
    reduction factor below `max_t`."""
    top = max_frame if spec.max_t is None else spec.max_t
    grace = top / spec.reduction_factor**2 if spec.grace_period is None else spec.grace_period
    scheduler = HyperBandScheduler(
        time_attr=TIME,
        metric=SCORE,
        mode="max",
        max_t=max(round(top / grace), 1),
        reduction_factor=spec.reduction_factor,
    )
    return Tune(scheduler, grace, seed)


def median_stopping(spec: MedianStoppingSpec, max_frame: int, seed: int) -> Judge:
    """The median stopping rule."""
    grace = max_frame / 10 if spec.grace_period is None else spec.grace_period
    scheduler = MedianStoppingRule(
        time_attr=TIME,
        metric=SCORE,
        mode="max",
        grace_period=grace,
        min_samples_required=spec.min_samples_required,
    )
    return Tune(scheduler, 1.0, seed)


JUDGES: dict[type, Callable[[Any, int, int], Judge]] = {
    AshaSpec: asha,
    HyperBandSpec: hyperband,
    MedianStoppingSpec: median_stopping,
}
