"""Parses JSON data into a Spec, and finds all problems at once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from slm_lab.core.errors import Problem
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.blocks import blocks_of, well_formed_blocks
from slm_lab.spec.budget import resolved
from slm_lab.spec.checks.algorithm import contradictions
from slm_lab.spec.checks.legacy import drop_legacy_keys, with_lab_names
from slm_lab.spec.checks.warnings import suspicious_settings, unused_keys
from slm_lab.spec.override import VARIABLE, variables
from slm_lab.spec.read import json_problems
from slm_lab.spec.schema.block import problems_of
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import search_cross_check, search_problems


class Parsed(NamedTuple):
    """A spec or its problems, and what to warn of."""

    spec: Spec | None
    problems: Sequence[Problem]
    legacy: Sequence[str]
    """the keys without effect"""
    env: EnvSpec | None
    """the environment, even if other blocks have problems; None if it has problems or
    variables"""
    suspicious: Sequence[str] = ()
    """warnings about valid values that are probably mistakes"""
    of_search: Sequence[Problem] = ()
    """the problems that concern only a search; if there are no others, `spec` is not
    None"""
    renamed: Sequence[str] = ()
    """the parts with a name of another library, such as SAC"""
    where: str = ""
    """the file and the name of the spec"""
    variables: Sequence[str] = ()
    """the `${var}` without a value; the values that contain them are not checked"""
    adapted: Sequence[str] = ()
    """what follows a budget that `-s` has shortened"""

    def for_training(self) -> "Parsed":
        """This result without problems of the `search` block, which a training
        ignores."""
        rest = [problem for problem in self.problems if problem not in self.of_search]
        return self._replace(problems=rest)


def parse(name: str, raw: Mapping[str, Any]) -> Parsed:
    """The spec in `raw`, with all its problems. They concern single keys, keys that do
    not fit together, the search space, and parts that are not available yet."""
    unwrapped, problems = unwrap_lists_of_one(raw)
    problems = [*json_problems(unwrapped), *problems]
    of_search = [problem for problem in problems if concerns_search(problem)]
    if len(of_search) < len(problems):
        return Parsed(None, problems, [], None)
    search = unwrapped.get("search")
    if search is not None and not isinstance(search, Mapping):
        of_search = [Problem("search", "must be a block {…} or null", search)]
    if of_search:
        unwrapped["search"] = None
    named, renamed = with_lab_names(unwrapped)
    data, legacy = drop_legacy_keys(named)
    data["name"] = name
    spec, problems = validate(data)
    blocks = blocks_of(spec) if spec is not None else well_formed_blocks(data)
    legacy += [f"{unused.path} ({unused.message})" for unused in unused_keys(blocks)]
    suspicious = list(map(str, suspicious_settings(blocks)))
    problems += contradictions(blocks)
    # a resumed run with a larger budget keeps the computed log frequency
    if spec is not None:
        meta = spec.meta.model_copy(update={"log_frequency": spec.log_frequency})
        spec = None if problems else spec.model_copy(update={"meta": meta})
    searched = data
    if spec is not None:
        searched = {**spec.to_json(), "search": data.get("search")}
    of_search += search_problems(searched, partial(_validate_as_loaded, notes=legacy))
    if isinstance(data.get("search"), Mapping):
        of_search += search_cross_check(data["search"], blocks)
    problems += of_search
    return Parsed(
        spec=spec,
        problems=problems,
        legacy=legacy,
        env=blocks.env,
        suspicious=suspicious,
        of_search=of_search,
        renamed=renamed,
    )


def concerns_search(problem: Problem) -> bool:
    """Whether the problem is in the `search` block."""
    return problem.path.partition(".")[0] == "search"


def _validate_as_loaded(
    data: Mapping[str, Any], notes: list[str]
) -> tuple[Spec | None, list[Problem]]:
    """`validate` for a spec with values of a search; adds its legacy keys to
    `notes`."""
    plain, dropped = drop_legacy_keys(with_lab_names(data)[0])
    notes.extend(f"search.{note}" for note in dropped if f"search.{note}" not in notes)
    return validate(plain)


def validate(data: Mapping[str, Any]) -> tuple[Spec | None, list[Problem]]:
    """The spec, or the problems of single keys."""
    try:
        return Spec.model_validate(resolved(data)), []
    except ValidationError as error:
        return None, problems_of(error)


def parse_template(name: str, raw: Mapping[str, Any]) -> Parsed:
    """Parses a spec in which some `${var}` are left: values with one count as valid;
    `spec` is None."""
    parsed = parse(name, raw)
    problems = [
        problem
        for problem in parsed.problems
        if not (isinstance(problem.value, str) and VARIABLE.search(problem.value))
    ]
    return parsed._replace(spec=None, problems=problems, env=None)


def unwrap_lists_of_one(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Converts the old form `"agent": [{…}]`, `"env": [{…}]`, in `search` too."""
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
                    f"a list of {len(value)} is not supported: one agent acts in one "
                    "environment"
                )
                problems.append(Problem(prefix + key, message))
    return data, problems


def setting_names(raw: Mapping[str, Any]) -> Iterator[str]:
    """What `-s` may set in a spec: its variables, and the dotted paths of its keys.
    Keys left at their defaults count too, except in a template."""
    spec, _ = validate(raw)
    yield from variables(raw)
    yield from _paths(raw if spec is None else spec.to_json())


def _paths(tree: Any, above: str = "") -> Iterator[str]:
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        yield f"{above}{key}"
        yield from _paths(value, f"{above}{key}.")
