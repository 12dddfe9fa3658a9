"""Checks that the trials of a search can make their environments."""

from collections.abc import Mapping
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from slm_lab.core.errors import MissingExtraError, Problem
from slm_lab.env.check import check_env
from slm_lab.env.lookup import find_env
from slm_lab.spec.override import with_value
from slm_lab.spec.schema.block import problems_of
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import LISTS, Dimension, extremes

if TYPE_CHECKING:
    from slm_lab.experiment.search.space import Space

AT_MOST = 200
"""Combinations tried for one value. With more, an invalid value surfaces only in the trials."""


def env_problems(space: "Space", base: Spec) -> list[Problem]:
    """Problems of searched `env` values with which no trial could make its environment: of each
    listed value, and one end of each range, that fits no possible values of the other searched
    keys. Constructs no environment."""
    searched = [each for each in space.dimensions if f"{each.path}.".startswith("env.")]
    return [
        problem
        for each in searched
        for value in _values(each)
        for problem in _problems_with(base, each, value, [o for o in searched if o is not each])
    ]


def _values(dimension: Dimension) -> list[Any]:
    tried = extremes(dimension)
    return tried if dimension.sampler in LISTS else tried[:1]


def _problems_with(
    base: Spec, dimension: Dimension, value: Any, others: list[Dimension]
) -> list[Problem]:
    """Problems of the value itself. [] if some combination with it is valid, or if only other keys'
    values are invalid."""
    combinations = product(*map(_values, others))
    path, other_paths = dimension.path, {other.path for other in others}
    own: list[Problem] = []
    for chosen in islice(combinations, AT_MOST):
        settings = {other.path: one for other, one in zip(others, chosen, strict=True)}
        found = _problems_at(base, {**settings, path: value})
        if not found:
            return []
        own = own or [problem for problem in found if problem.path not in other_paths]
    if next(combinations, None) is not None:
        return []
    key = f"search.{dimension.key}"
    return [
        Problem(key, each.message if each.path == path else f"{each.path}: {each.message}", value)
        for each in own
    ]


def _problems_at(base: Spec, settings: Mapping[str, Any]) -> list[Problem]:
    changed: Any = {"env": base.env.model_dump(mode="json")}
    for path, value in settings.items():
        changed = with_value(changed, path.split("."), value)
    try:
        env = EnvSpec.model_validate(changed["env"])
    except ValidationError as error:
        return problems_of(error, "env")
    if problems := check_env(env):
        return problems
    try:
        find_env(env.name)
    except MissingExtraError as error:
        return [Problem("env.name", str(error), env.name)]
    return []
