"""Checks the space of a search against its searcher and its scheduler."""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from slm_lab.core.errors import Problem
from slm_lab.spec.schema.bounds import TRIALS
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.scheduler import HalvingSpec, HyperBandSpec, PbtSpec
from slm_lab.spec.search import Dimension, dimensions

NOT_OF_SEARCHER = {
    "optuna": (
        "grid_search",
        "normal",
        "randn",
        "qrandn",
        "qloguniform",
        "qlograndint",
    ),
    "hyperopt": ("grid_search",),
}
"""Samplers that a searcher does not support."""

MUTABLE = re.compile(
    r"agent\.algorithm\.\w*(gamma|lam|coef|eps|alpha|temperature|loss|epoch|iter|size)"
    r"\w*(\.(start_val|end_val))?$"
    r"|agent\.(net|critic_net)\.(\w*clip_grad_val|polyak_coef|update_frequency)$"
    r"|agent\.(net|critic_net)\.\w*optim_spec\.(?!name$)\w+$"
    r"|agent\.memory\.(batch_size|alpha|epsilon)$"
    r"|env\.(reward_scale|clip_reward)$"
)
"""Keys that may change while an agent trains. None of them changes the shape of its
nets, its memory or its environment."""


def search_cross_check(
    search: Mapping[str, Any], meta: MetaSpec | None, env: EnvSpec | None
) -> Iterator[Problem]:
    """The problems of a search whose single keys are valid."""
    if meta is None:
        return
    space = [each for each in dimensions(search) if each.sampler]
    yield from _searcher_knows(space, meta)
    yield from _grid_has_an_end(space)
    yield from _at_equal_frames(meta)
    if env is not None:
        yield from _within_budget(meta, env.max_frame)
    if (
        isinstance(meta.search_scheduler, HyperBandSpec | PbtSpec)
        and meta.search_alg != "random"
    ):
        message = (
            f"must be random with search_scheduler {meta.search_scheduler.name}, "
            "which needs all trials before the first ends"
        )
        yield Problem("meta.search_alg", message, meta.search_alg)
    if isinstance(meta.search_scheduler, PbtSpec):
        yield from _population(space, meta)


def _searcher_knows(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    unknown = NOT_OF_SEARCHER.get(meta.search_alg, ())
    for each in space:
        if each.sampler in unknown:
            instead = (
                "choice" if each.sampler == "grid_search" else "uniform or loguniform"
            )
            message = (
                f"{meta.search_alg} has no {each.sampler}; use {instead}, or "
                "search_alg random"
            )
            yield Problem(f"search.{each.key}", message)


def _grid_has_an_end(space: list[Dimension]) -> Iterator[Problem]:
    grid = [each for each in space if each.sampler == "grid_search"]
    points = prod(len(each.args) for each in grid if isinstance(each.args, list))
    if message := TRIALS.refusal(points):
        keys = ", ".join(each.key for each in grid)
        yield Problem(
            "search", f"the grid of {keys} has {points:,} points, and {message}"
        )


def _at_equal_frames(meta: MetaSpec) -> Iterator[Problem]:
    if meta.search_scheduler is not None and meta.max_run > 1:
        message = (
            "must be 1 beside search_scheduler, which compares trials while they run, "
            "but runs of one trial are sequential; meta.confirm repeats the best"
        )
        yield Problem("meta.max_run", message, meta.max_run)


def _within_budget(meta: MetaSpec, max_frame: int) -> Iterator[Problem]:
    scheduler = meta.search_scheduler
    keys = ("grace_period", "perturbation_interval", "burn_in_period", "max_t")
    for key in keys:
        frames = getattr(scheduler, key, None)
        if frames is not None and frames > max_frame:
            message = (
                f'must be <= env.max_frame ({max_frame}), or a share of it, as "10%"'
            )
            yield Problem(f"meta.search_scheduler.{key}", message, frames)
    if isinstance(scheduler, HalvingSpec):
        grace, top = scheduler.grace_period, scheduler.max_t
        if grace is not None and top is not None and top < grace:
            message = f"must be <= max_t ({top:g})"
            yield Problem("meta.search_scheduler.grace_period", message, grace)


def _population(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_trial < 2:
        message = (
            "must be >= 2 with search_scheduler pbt: it is the size of the population"
        )
        yield Problem("meta.max_trial", message, meta.max_trial)
    for each in space:
        if not MUTABLE.match(each.path):
            message = (
                "cannot change while an agent trains, as search_scheduler pbt requires"
            )
            yield Problem(f"search.{each.key}", message)
