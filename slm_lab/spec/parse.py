"""From JSON data to a Spec: everything that can be wrong with it, found at once."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from slm_lab.core.errors import Problem
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.availability import unavailable
from slm_lab.spec.blocks import blocks_of, well_formed_blocks
from slm_lab.spec.cross_check import cross_check
from slm_lab.spec.cross_check_search import search_cross_check
from slm_lab.spec.doubts import doubts
from slm_lab.spec.legacy import drop_legacy_keys
from slm_lab.spec.no_effect import without_effect
from slm_lab.spec.override import VARIABLE
from slm_lab.spec.problems import problems_of
from slm_lab.spec.read import not_json
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import search_problems


class Parsed(NamedTuple):
    """A spec or its problems, the keys in it that mean nothing, and what looks like a mistake."""

    spec: Spec | None
    problems: Sequence[Problem]
    legacy: Sequence[str]
    env: EnvSpec | None
    """the environment, also where other blocks have problems"""
    doubts: Sequence[str] = ()
    """what can be done and is hardly what was meant"""
    of_search: Sequence[Problem] = ()
    """those of the problems that only a search minds; with no others there is a spec"""

    def for_training(self) -> "Parsed":
        """The same for who does not search: problems of the `search` block are none."""
        rest = [problem for problem in self.problems if problem not in self.of_search]
        return self._replace(problems=rest)


def parse(name: str, raw: Mapping[str, Any]) -> Parsed:
    """The spec in `raw`, with every problem it has: of its keys, of what does not fit together,
    of its search space, and of what is not built yet."""
    unwrapped, problems = unwrap_lists_of_one(raw)
    problems = [*not_json(unwrapped), *problems]
    of_search = [problem for problem in problems if is_of_search(problem)]
    if len(of_search) < len(problems):
        return Parsed(None, problems, [], None)
    search = unwrapped.get("search")
    if search is not None and not isinstance(search, Mapping):
        of_search = [Problem("search", "must be a block {…} or null", search, has_value=True)]
    if of_search:
        unwrapped["search"] = None
    data, legacy = drop_legacy_keys(unwrapped)
    data["name"] = name
    spec, problems = validate(data)
    blocks = blocks_of(spec) if spec is not None else well_formed_blocks(data)
    legacy += without_effect(blocks)
    problems += [*cross_check(blocks), *unavailable(blocks)]
    spec = None if problems or spec is None else _with_log_frequency(spec)
    of_search += search_problems(data, partial(_validate_as_loaded, notes=legacy))
    if isinstance(data.get("search"), Mapping):
        of_search += search_cross_check(data["search"], blocks.meta, blocks.env)
    problems += of_search
    return Parsed(spec, problems, legacy, blocks.env, doubts(blocks), of_search)


def is_of_search(problem: Problem) -> bool:
    """Whether it lies in the `search` block."""
    return problem.path.partition(".")[0] == "search"


def _with_log_frequency(spec: Spec) -> Spec:
    """The number is part of the spec from here on, so that a resumed run with a larger budget
    keeps it."""
    meta = spec.meta.model_copy(update={"log_frequency": spec.log_frequency})
    return spec.model_copy(update={"meta": meta})


def _validate_as_loaded(
    data: Mapping[str, Any], notes: list[str]
) -> tuple[Spec | None, list[Problem]]:
    """`validate`, for a spec into which a search may have put keys that mean nothing: these are
    added to `notes`."""
    plain, dropped = drop_legacy_keys(data)
    notes.extend(f"search.{note}" for note in dropped if f"search.{note}" not in notes)
    return validate(plain)


def validate(data: Mapping[str, Any]) -> tuple[Spec | None, list[Problem]]:
    """The spec, or what is wrong with single keys."""
    try:
        return Spec.model_validate(data), []
    except ValidationError as error:
        return None, problems_of(error)


def parse_template(name: str, raw: Mapping[str, Any]) -> Parsed:
    """As `parse`, for a spec in which some `${var}` have no value yet: whatever stands at such a
    place is taken for right. `spec` is None."""
    parsed = parse(name, raw)
    problems = [p for p in parsed.problems if not (p.has_value and _holds_variable(p.value))]
    return parsed._replace(spec=None, problems=problems, env=None)


def _holds_variable(value: object) -> bool:
    return isinstance(value, str) and VARIABLE.search(value) is not None


def unwrap_lists_of_one(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The old form `"agent": [{…}]`, `"env": [{…}]`, in `search` too, as the present one."""
    data = dict(raw)
    problems = []
    blocks: list[tuple[str, dict[str, Any]]] = [("", data)]
    if isinstance(data.get("search"), Mapping):
        data["search"] = dict(data["search"])
        blocks.append(("search.", data["search"]))
    for prefix, block in blocks:
        for key in ("agent", "env"):
            value = block.get(key)
            if isinstance(value, list) and len(value) == 1:
                block[key] = value[0]
            elif isinstance(value, list):
                message = (
                    f"a list of {len(value)} is not supported: one agent acts in one environment"
                )
                problems.append(Problem(prefix + key, message))
    return data, problems
