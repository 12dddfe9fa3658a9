"""Checks whole files: every spec in them, templates included."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.load import settings_of, settle, spec_names
from slm_lab.spec.override import variables
from slm_lab.spec.parse import parse, parse_template
from slm_lab.spec.read import find_file, read_file, shipped_name
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.env import EnvSpec


class Checked(NamedTuple):
    """The result of checking one spec."""

    where: str
    problems: Sequence[Problem]
    legacy: Sequence[str]
    variables: Sequence[str]
    """the `${var}` without a value; the values that contain them are not checked"""
    env: EnvSpec | None
    """for the checks with the environment; None if env has problems or variables"""
    agent: AgentSpec | None
    """for the same checks; None if anything in the spec has problems or variables"""
    suspicious: Sequence[str] = ()


def check_file(file: str | Path, sets: Sequence[str] = ()) -> list[Checked]:
    """Checks every spec of a file, with `sets` ("key=value") applied.

    Raises SpecError for an unreadable file, or a file without specs.
    """
    path = find_file(file)
    content = read_file(path)
    names = spec_names(content)
    if not names:
        raise SpecError(shipped_name(path), [Problem("file", "holds no spec {agent, env, meta}")])
    settings, problems = settings_of(sets, {})
    if problems:
        raise SpecError("the command line", problems)
    found = []
    for name in names:
        raw, setting_problems = settle(content[name], settings)
        left = variables({key: value for key, value in raw.items() if key != "spec_params"})
        parsed = parse_template(name, raw) if left else parse(name, raw)
        where = f"{shipped_name(path)}: {name}"
        all_problems = [*setting_problems, *parsed.problems]
        agent = None if parsed.spec is None else parsed.spec.agent
        found.append(
            Checked(where, all_problems, parsed.legacy, left, parsed.env, agent, parsed.suspicious)
        )
    return found
