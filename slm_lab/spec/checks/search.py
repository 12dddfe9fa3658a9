"""Checks the space of a search against its searcher and its scheduler."""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.schema.block import REFUSING
from slm_lab.spec.schema.bounds import TRIALS
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.rules import Facts, broken_rules
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


def search_cross_check(search: Mapping[str, Any], blocks: Blocks) -> Iterator[Problem]:
    """The problems of a search whose single keys are valid."""
    meta = blocks.meta
    if meta is None:
        return
    space = [dimension for dimension in dimensions(search) if dimension.sampler]
    yield from _searcher_knows(space, meta)
    yield from _grid_has_an_end(space)
    scheduler = meta.search_scheduler
    if scheduler is None:
        return
    facts = Facts("meta.search_scheduler", scheduler, blocks)
    yield from _at_equal_frames(meta)
    yield from broken_rules(REFUSING, facts)
    if scheduler.COUNTS_ALL_TRIALS and meta.search_alg != "random":
        message = (
            f"must be random with search_scheduler {scheduler.name}, which needs all "
            "trials before the first ends"
        )
        yield Problem("meta.search_alg", message, meta.search_alg)
    if scheduler.name == "pbt":
        yield from _population(space, meta)


def _searcher_knows(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    unknown = NOT_OF_SEARCHER.get(meta.search_alg, ())
    for dimension in space:
        sampler = dimension.sampler
        if sampler in unknown:
            instead = "uniform or loguniform"
            if sampler == "grid_search":
                instead = "choice"
            message = (
                f"{meta.search_alg} has no {sampler}; use {instead}, or search_alg "
                "random"
            )
            yield Problem(f"search.{dimension.key}", message)


def _grid_has_an_end(space: list[Dimension]) -> Iterator[Problem]:
    grid = [dimension for dimension in space if dimension.sampler == "grid_search"]
    lists = [dimension.args for dimension in grid if isinstance(dimension.args, list)]
    points = prod(map(len, lists))
    message = TRIALS.refusal(points)
    if message:
        keys = ", ".join(dimension.key for dimension in grid)
        yield Problem(
            "search", f"the grid of {keys} has {points:,} points, and {message}"
        )


def _at_equal_frames(meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_run > 1:
        message = (
            "must be 1 beside search_scheduler, which compares trials while they run, "
            "but runs of one trial are sequential; meta.confirm repeats the best"
        )
        yield Problem("meta.max_run", message, meta.max_run)


def _population(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_trial < 2:
        message = (
            "must be >= 2 with search_scheduler pbt: it is the size of the population"
        )
        yield Problem("meta.max_trial", message, meta.max_trial)
    for dimension in space:
        if not MUTABLE.match(dimension.path):
            message = (
                "cannot change while an agent trains, as search_scheduler pbt requires"
            )
            yield Problem(f"search.{dimension.key}", message)
