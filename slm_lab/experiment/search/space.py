"""The space of a search: what Ray Tune draws, and the spec that a point of it makes."""

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from ray import tune
from ray.tune.search.sample import Domain

from slm_lab.core.errors import Problem, SpecError
from slm_lab.experiment.search.record import Point
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import LISTS, SAMPLERS, Dimension, dimensions

OF_SEARCH = ("max_trial", "search_alg", "search_scheduler", "search_resources", "confirm")
"""Keys of meta that say nothing to a single trial."""


@final
class Space:
    """The searched keys of a spec.

    An engine draws the place of a value in a list, not the value: engines treat a list such as
    [64, 64], or a block, as something to search in by itself.
    """

    def __init__(self, spec: Spec) -> None:
        self.dimensions = tuple(dimensions(spec.search or {}))

    @property
    def grid_points(self) -> int:
        """The size of its grid; 1 where there is none."""
        sizes = [len(each.args) for each in self.dimensions if each.sampler == "grid_search"]
        return int(np.prod(sizes, dtype=np.int64)) if sizes else 1

    @property
    def is_grid(self) -> bool:
        """Whether there is nothing to draw, only points to go through."""
        return all(each.sampler == "grid_search" for each in self.dimensions)

    def domains(self) -> dict[str, Any]:
        """What Tune draws from, by path."""
        return {each.path: _domain(each) for each in self.dimensions}

    def point(self, drawn: Mapping[str, Any]) -> Point:
        """The values that stand for what was drawn from `domains`."""
        return {each.path: _value(each, drawn[each.path]) for each in self.dimensions}


def spec_at(base: Spec, point: Point) -> Spec:
    """The spec of a trial: `base` with the values of `point`, and nothing more to search.

    Raises SpecError where such values do not go together.
    """
    settings = [Setting(path, value) for path, value in point.items()]
    data, problems = apply_settings(base.to_json(), settings, dict)
    data.pop("search", None)
    data["meta"] = {key: data["meta"][key] for key in data["meta"] if key not in OF_SEARCH}
    parsed = parse(base.name, data)
    if parsed.spec is None or problems:
        raise SpecError(f"{base.name} at {dict(point)}", [*problems, *parsed.problems])
    return parsed.spec


def check_whole(where: str, base: Spec) -> None:
    """Raises SpecError where there is nothing to search."""
    if not base.search:
        message = "is missing: the keys to vary, as agent.algorithm.gamma__uniform: [0.9, 0.999]"
        raise SpecError(where, [Problem("search", message)])


def _domain(dimension: Dimension) -> Any:
    name = dimension.sampler
    if name in LISTS:
        return getattr(tune, name)(list(range(len(dimension.args))))
    if name in _QUANTISED_INTEGERS:
        # Engines do not agree on whether the last multiple of q is drawn: they number them.
        q = _quantum(dimension)
        first, last = (round(end / q) for end in dimension.args[:2])
        return _SAMPLERS[name](first, last if q == 1 else last + 1)
    arguments = zip(SAMPLERS[name].arguments, dimension.args, strict=False)
    return _SAMPLERS[name](*(value for key, value in arguments if key != "base"))


def _value(dimension: Dimension, drawn: Any) -> Any:
    if dimension.sampler in LISTS:
        return dimension.args[int(drawn)]
    if dimension.sampler in _QUANTISED_INTEGERS:
        return round(int(drawn) * _quantum(dimension))
    return drawn.item() if isinstance(drawn, np.generic) else drawn


def _quantum(dimension: Dimension) -> float:
    """What the values are multiples of; 0 where they are any number."""
    arguments = SAMPLERS[dimension.sampler].arguments
    given = dict(zip(arguments, dimension.args, strict=False))
    return float(given.get("q", 1 if SAMPLERS[dimension.sampler].whole else 0))


def mutate(dimension: Dimension, value: Any, factor: float, rng: np.random.Generator) -> Any:
    """A value near to `value`: multiplied by `factor`, or a neighbour of it in a list."""
    if dimension.sampler in LISTS:
        place = dimension.args.index(value) + (1 if rng.random() < 0.5 else -1)
        return dimension.args[min(max(place, 0), len(dimension.args) - 1)]
    changed, q = value * factor, _quantum(dimension)
    if q:
        before, after = round(value / q), round(changed / q)
        if before == after:  # a share of a small number may be less than a step
            after += int(np.sign(changed - value))
        changed = q * after
    lower, upper, *_ = dimension.args
    if dimension.sampler not in _UNBOUNDED:
        changed = min(max(changed, lower), upper - 1 if _is_without_end(dimension) else upper)
    return round(changed) if isinstance(value, int) else float(changed)


def _is_without_end(dimension: Dimension) -> bool:
    return SAMPLERS[dimension.sampler].whole and _quantum(dimension) == 1


def draw(dimension: Dimension, rng: np.random.Generator) -> Any:
    """A value drawn anew."""
    if dimension.sampler in LISTS:
        return dimension.args[int(rng.integers(len(dimension.args)))]
    domain: Domain = _domain(dimension)
    drawn = domain.sample(random_state=np.random.RandomState(int(rng.integers(2**31))))
    return _value(dimension, drawn)


_SAMPLERS: dict[str, Callable[..., Any]] = {
    "uniform": tune.uniform,
    "quniform": tune.quniform,
    "loguniform": tune.loguniform,
    "qloguniform": tune.qloguniform,
    "randint": tune.randint,
    "qrandint": tune.randint,
    "lograndint": tune.lograndint,
    "qlograndint": tune.lograndint,
    "normal": tune.randn,
    "randn": tune.randn,
    "qrandn": tune.qrandn,
}
_UNBOUNDED = ("normal", "randn", "qrandn")
_QUANTISED_INTEGERS = ("qrandint", "qlograndint")
