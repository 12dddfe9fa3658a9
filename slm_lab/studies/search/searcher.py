"""Searchers propose the params of trials: Ray Tune's random draw and grid, Optuna or
HyperOpt. Each is a deterministic function of its seed and the reports. So a resumed
search replays the log."""

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

import numpy as np
from typing_extensions import override

from slm_lab.core.errors import MissingExtraError
from slm_lab.core.process import quietly
from slm_lab.env.extras import import_extra
from slm_lab.metrics.trial_state import Params
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.search import num_trials
from slm_lab.studies.search.space import Space

if TYPE_CHECKING:
    from ray.tune.search import Searcher as TuneSearcher

SCORE = "score"
"""Tune's name for the maximised metric."""
COUNT = "training_iteration"
"""Tune's name for the number of results that a trial has reported."""
LOGGERS = ("optuna", "hyperopt", "ray.tune")
"""Loggers of the search libraries, which are silenced."""


class Searcher(ABC):
    """Proposes params, and learns from the reports of their trials."""

    num_trials: int
    """The total number of trials it proposes."""

    @abstractmethod
    def propose(self, trial: int) -> Params:
        """The params of the next trial; trials are numbered from 0."""

    def report(self, trial: int, count: int, score: float) -> None:
        """Receives the `count`-th score of a running trial."""

    def end(self, trial: int, score: float | None) -> None:
        """Receives the final score of a trial; None if it failed."""


@final
class GridRandomSearcher(Searcher):
    """Grid points, with random draws for the keys outside the grid. A pure grid is
    visited once. With random keys, whole grids repeat up to at least `max_trial`."""

    def __init__(self, space: Space, max_trial: int, seed: int) -> None:
        from ray.tune.search.variant_generator import generate_variants

        self.num_trials = num_trials(space.dimensions, max_trial)
        self._space = space
        random_state = np.random.RandomState(seed % 2**32)
        # Endless: a resumed search may have more trials than its new `max_trial`.
        self._drawn = (
            drawn
            for _ in itertools.count()
            for _, drawn in generate_variants(
                space.domains(), random_state=random_state
            )
        )

    @override
    def propose(self, trial: int) -> Params:
        return self._space.params(next(self._drawn))


@final
class TuneAdapter(Searcher):
    """A searcher of Ray Tune."""

    def __init__(
        self, tune_searcher: "TuneSearcher", space: Space, max_trial: int
    ) -> None:
        self.num_trials = max_trial
        self._tune_searcher = tune_searcher
        self._space = space
        with quietly(*LOGGERS):
            tune_searcher.set_search_properties(SCORE, "max", space.domains())

    @override
    def propose(self, trial: int) -> Params:
        with quietly(*LOGGERS):
            drawn = self._tune_searcher.suggest(str(trial))
        assert isinstance(drawn, dict)
        return self._space.params(drawn)

    @override
    def report(self, trial: int, count: int, score: float) -> None:
        with quietly(*LOGGERS):
            self._tune_searcher.on_trial_result(
                str(trial), {SCORE: score, COUNT: count}
            )

    @override
    def end(self, trial: int, score: float | None) -> None:
        result = None
        if score is not None:
            result = {SCORE: score, COUNT: 0}
        with quietly(*LOGGERS):
            self._tune_searcher.on_trial_complete(
                str(trial), result, error=score is None
            )


def build_searcher(space: Space, meta: MetaSpec, seed: int) -> Searcher:
    """The searcher named by `meta.search_alg`. Raises MissingExtraError, also without
    Ray Tune, on which every search is built."""
    import_extra("ray.tune", "search")
    if meta.search_alg == "random":
        return GridRandomSearcher(space, meta.max_trial, seed)
    name = meta.search_alg
    seed = seed % 2**31
    tune_searcher: TuneSearcher
    with quietly(*LOGGERS):
        try:
            import_extra(name, name)
        except MissingExtraError as error:
            raise MissingExtraError(f"meta.search_alg = {name}: {error}") from error
        if name == "optuna":
            from ray.tune.search.optuna import OptunaSearch

            tune_searcher = OptunaSearch(seed=seed)
        else:
            from ray.tune.search.hyperopt import HyperOptSearch

            tune_searcher = HyperOptSearch(random_state_seed=seed)
    return TuneAdapter(tune_searcher, space, meta.max_trial)
