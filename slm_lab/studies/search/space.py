"""The search space: domains for Ray Tune, and the spec at a point of the space."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from slm_lab.core.errors import SpecError
from slm_lab.metrics.trial_state import Params
from slm_lab.spec.budget import budget_of, stretched
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import LISTS, OF_SEARCH, SAMPLERS, Dimension, dimensions


@final
class Space:
    """The searched keys of a spec. For a list of values, a searcher draws the index,
    not the value. Otherwise it would search inside a value such as [64, 64] or a
    block."""

    def __init__(self, spec: Spec) -> None:
        self.dimensions = tuple(dimensions(spec.search or {}))

    def domains(self) -> dict[str, Any]:
        """Tune's domains, by path."""
        return {dimension.path: _domain(dimension) for dimension in self.dimensions}

    def params(self, drawn: Mapping[str, Any]) -> Params:
        """The values of the keys for a draw from `domains`."""
        return {
            dimension.path: _value(dimension, drawn[dimension.path])
            for dimension in self.dimensions
        }


def spec_at(base: Spec, params: Params) -> Spec:
    """The spec of a trial: `base` with the values of `params`, without search keys.
    Schedules keep their shares of a searched `env.max_frame`. Raises SpecError if the
    spec is invalid with these values."""
    data = base.to_json()
    budget = budget_of({"env": {"max_frame": params.get("env.max_frame")}})
    frames = {} if budget is None else stretched(data, base.env.max_frame, budget)
    settings = [Setting(path, value) for path, value in {**frames, **params}.items()]
    data, problems = apply_settings(data, settings, dict)
    data.pop("search", None)
    data["meta"] = {
        key: data["meta"][key] for key in data["meta"] if key not in OF_SEARCH
    }
    parsed = parse(base.name, data)
    if parsed.spec is None or problems:
        raise SpecError(f"{base.name} at {dict(params)}", [*problems, *parsed.problems])
    return parsed.spec


def check_has_search(where: str, base: Spec) -> None:
    """Raises SpecError if the spec has no search block."""
    if not base.search:
        message = (
            "is missing: the keys to vary, as agent.algorithm.gamma__uniform: [0.9, "
            "0.999]"
        )
        raise SpecError.of(where, "search", message)


def _domain(dimension: Dimension) -> Any:
    from ray import tune  # only drawn values need it, a check of a spec does not

    name = dimension.sampler
    sampler = getattr(tune, _TUNE_NAMES.get(name, name))
    if name in LISTS:
        return sampler(list(range(len(dimension.args))))
    if name in _QUANTISED_INTEGERS:
        # Searchers differ on whether the last multiple of q is drawn, so they draw its
        # index.
        q = _quantum(dimension)
        first, last = (round(end / q) for end in dimension.args[:2])
        return sampler(first, last if q == 1 else last + 1)
    arguments = SAMPLERS[name].name_arguments(dimension.args)
    return sampler(*(value for key, value in arguments.items() if key != "base"))


def _value(dimension: Dimension, drawn: Any) -> Any:
    if dimension.sampler in LISTS:
        return dimension.args[int(drawn)]
    q = _quantum(dimension)
    if dimension.sampler in _QUANTISED_INTEGERS:
        return round(int(drawn) * q)
    value = drawn
    if isinstance(drawn, np.generic):
        value = drawn.item()
    if q and isinstance(value, float):
        # Ray 2.40 rounds nothing to a q of 1
        return q * round(value / q)
    return value


def _quantum(dimension: Dimension) -> float:
    """The step q of which all values are multiples; 0 for continuous values."""
    sampler = SAMPLERS[dimension.sampler]
    return float(
        sampler.name_arguments(dimension.args).get("q", 1 if sampler.whole else 0)
    )


def mutate(
    dimension: Dimension, value: Any, factor: float, rng: np.random.Generator
) -> Any:
    """A value near `value`: multiplied by `factor`, or its neighbour in a list."""
    if dimension.sampler in LISTS:
        index = dimension.args.index(value) + (1 if rng.random() < 0.5 else -1)
        return dimension.args[min(max(index, 0), len(dimension.args) - 1)]
    changed = value * factor
    q = _quantum(dimension)
    if q:
        before = round(value / q)
        after = round(changed / q)
        if before == after:  # the change of a small value may round to zero steps
            after += int(np.sign(changed - value))
        changed = q * after
    lower, upper, *_ = dimension.args
    if dimension.sampler not in _UNBOUNDED:
        is_excluded = SAMPLERS[dimension.sampler].whole and q == 1
        changed = min(max(changed, lower), upper - 1 if is_excluded else upper)
    if isinstance(value, int):
        return round(changed)
    return float(changed)


def draw(dimension: Dimension, rng: np.random.Generator) -> Any:
    """A fresh random value."""
    if dimension.sampler in LISTS:
        return dimension.args[int(rng.integers(len(dimension.args)))]
    drawn = _domain(dimension).sample(
        random_state=np.random.RandomState(int(rng.integers(2**31)))
    )
    return _value(dimension, drawn)


_TUNE_NAMES = {"qrandint": "randint", "qlograndint": "lograndint", "normal": "randn"}
"""Tune's names where they differ, or where the index is drawn."""
_UNBOUNDED = ("normal", "randn", "qrandn")
_QUANTISED_INTEGERS = ("qrandint", "qlograndint")
