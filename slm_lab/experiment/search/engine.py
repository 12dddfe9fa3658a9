"""What proposes the points of a search: Ray Tune's own, Optuna or HyperOpt.

An engine is a function of its seed and of what it was told, in that order. So a search that goes on
tells a fresh one again what the record holds, and it stands where the other stood.
"""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from slm_lab.core.errors import MissingExtraError
from slm_lab.experiment.search.record import Point
from slm_lab.experiment.search.space import Space
from slm_lab.spec.schema.meta import MetaSpec

SCORE = "score"
"""What is maximised, as Tune's parts call it."""
COUNT = "training_iteration"
"""How many results a trial has reported, as Tune calls it."""


class Engine(ABC):
    """Proposes points, and learns from what their trials report."""

    num_trials: int
    """How many it proposes in all."""

    @abstractmethod
    def propose(self, trial: int) -> Point:
        """The point of the next trial; they are numbered from 0 on."""

    def report(self, trial: int, count: int, score: float) -> None:
        """The `count`-th score of a trial that goes on."""

    def end(self, trial: int, score: float | None) -> None:
        """The score that a trial ended with; None where it failed."""


@final
class Drawn(Engine):
    """Points of the grid, each once, and what is not of the grid drawn at random; where there is
    something to draw the grid is gone through until there are `max_trial`."""

    def __init__(self, space: Space, max_trial: int, seed: int) -> None:
        rounds = 1 if space.is_grid else -(-max_trial // space.grid_points)
        self.num_trials = rounds * space.grid_points
        self._points = _drawn(space, seed)

    def propose(self, trial: int) -> Point:
        """See `Engine`."""
        return next(self._points)


def _drawn(space: Space, seed: int) -> Iterator[Point]:
    """Without end: a search that goes on may be asked for fewer trials than it has."""
    random_state = np.random.RandomState(seed % 2**32)
    while True:
        for _, drawn in generate_variants(space.domains(), random_state=random_state):
            yield space.point(drawn)


@final
class Searching(Engine):
    """A searcher of Ray Tune."""

    def __init__(self, searcher: Searcher, space: Space, max_trial: int) -> None:
        self.num_trials = max_trial
        self._searcher = searcher
        self._space = space
        with _quietly():
            searcher.set_search_properties(SCORE, "max", space.domains())

    def propose(self, trial: int) -> Point:
        """See `Engine`."""
        with _quietly():
            drawn = self._searcher.suggest(str(trial))
        assert isinstance(drawn, dict)
        return self._space.point(drawn)

    def report(self, trial: int, count: int, score: float) -> None:
        """See `Engine`."""
        with _quietly():
            self._searcher.on_trial_result(str(trial), {SCORE: score, COUNT: count})

    def end(self, trial: int, score: float | None) -> None:
        """See `Engine`."""
        result = None if score is None else {SCORE: score, COUNT: 0}
        with _quietly():
            self._searcher.on_trial_complete(str(trial), result, error=score is None)


def build_engine(space: Space, meta: MetaSpec, seed: int) -> Engine:
    """The engine that `meta.search_alg` names. Raises MissingExtraError."""
    if meta.search_alg == "random":
        return Drawn(space, meta.max_trial, seed)
    searcher = _SEARCHERS[meta.search_alg](seed % 2**31)
    return Searching(searcher, space, meta.max_trial)


def _optuna(seed: int) -> Searcher:
    with _quietly():
        _require("optuna")
        from ray.tune.search.optuna import OptunaSearch

        return OptunaSearch(seed=seed)


def _hyperopt(seed: int) -> Searcher:
    with _quietly():
        _require("hyperopt")
        from ray.tune.search.hyperopt import HyperOptSearch

        return HyperOptSearch(random_state_seed=seed)


_SEARCHERS: dict[str, Callable[[int], Searcher]] = {"optuna": _optuna, "hyperopt": _hyperopt}


def _require(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise MissingExtraError(
            f"meta.search_alg = {package}: {error}; install it with "
            f"pip install 'slm-lab[{package}]'"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the engines print of every step, and of what they think deprecated."""
    loggers: list[Any] = [logging.getLogger(name) for name in ("optuna", "hyperopt", "ray.tune")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
