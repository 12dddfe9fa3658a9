"""The places of Trials on the axis of a hyperparameter or of a metric."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slm_lab.charts.chart import Scale, limits
from slm_lab.charts.search_summary import identity, numeric
from slm_lab.core.types import FloatArray
from slm_lab.core.values import value_text
from slm_lab.spec.search import LISTS, Dimension

MOST_CATEGORIES = 12
"""Numbers picked from a longer list get an axis of numbers."""
MISSING = object()
"""Stands for a value that a Trial does not have."""

_MARGIN = 0.06  # of an axis, on both sides
_SPREAD = 0.28  # of the Trials in one category, at most
_STEP = 0.03  # for each of them
_GOLDEN = 0.5 * (math.sqrt(5) - 1)  # whose multiples, modulo 1, stay far apart


class Places(NamedTuple):
    """The places `at` (n,) of n Trials on an axis, NaN without one. Categories count
    from 0."""

    scale: Scale
    at: FloatArray

    @property
    def beside(self) -> FloatArray:
        """(n,): `at`, with the Trials of one category side by side, in no order."""
        moved = self.at.copy()
        for place, _ in enumerate(self.scale.categories):
            there = np.flatnonzero(self.at == place)
            room = min(_SPREAD, _STEP * there.size)
            shares = _GOLDEN * np.arange(1, there.size + 1) % 1
            moved[there] += room * (2 * shares - 1)
        return moved


def number_places(
    values: Sequence[float | None], label: str = "", whole: bool = False
) -> Places:
    """Plain numbers; None stands nowhere."""
    at = np.array(values, np.float64)
    return Places(Scale(label, limits([at], _MARGIN), whole=whole), at)


def variable_places(
    variable: Dimension, values: Sequence[Any], label: str = ""
) -> Places:
    """The axis of a variable over its `values` in n Trials, MISSING where one has none.
    Categories if a value is no number, numbers were picked from a short list, or are
    whole and close."""
    known = [value for value in values if value is not MISSING]
    choices = list(known)
    is_listed = variable.sampler in LISTS
    if is_listed:
        choices = [*variable.args, *known]
    kinds = {identity(value): value for value in choices}
    if not numeric(known) or (is_listed and len(kinds) <= MOST_CATEGORIES):
        return _categories(values, list(kinds.values()), label)
    is_whole = all(isinstance(value, int) for value in known)
    numbers = [math.nan if value is MISSING else value for value in values]
    at = np.array(numbers, np.float64)
    if "log" in variable.sampler and all(value > 0 for value in known):
        ends = limits([at], _MARGIN, log=True)
        return Places(Scale(label, ends, log=True), at)
    if is_whole and known and max(known) - min(known) < MOST_CATEGORIES:
        return _categories(values, range(min(known), max(known) + 1), label)
    return number_places(at.tolist(), label, is_whole)


def _categories(values: Sequence[Any], kinds: Sequence[Any], label: str) -> Places:
    if numeric(kinds):
        kinds = sorted(kinds)
    place = {identity(kind): float(i) for i, kind in enumerate(kinds)}
    at = [math.nan if value is MISSING else place[identity(value)] for value in values]
    texts = tuple(value_text(kind) for kind in kinds)
    ends = (-0.5, max(len(kinds), 1) - 0.5)
    return Places(Scale(label, ends, categories=texts), np.array(at, np.float64))
