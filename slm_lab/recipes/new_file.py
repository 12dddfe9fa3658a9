"""The commented spec file that `slm-lab new` writes for an environment."""

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import yaml
from pydantic import BaseModel

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.files import write_atomically
from slm_lab.recipes.env_facts import EnvFacts
from slm_lab.recipes.recipe import choose_recipe, plain_env
from slm_lab.records.trust import IMPORTS
from slm_lab.spec.load import load_spec
from slm_lab.spec.override import apply_settings, parse_setting
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.optim import TorchPart
from slm_lab.spec.schema.schedule import ScheduleSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import safe_name

INDENT = "  "
COLUMNS = 100
"""The longest line with a comment behind its key; a longer comment precedes the key."""
SMALL = (TorchPart, ScheduleSpec)
"""Blocks that stand in one line."""
PLAIN = ("name", "type")
"""Keys without a comment: their values say enough."""


@final
class NewFile:
    """A file to be written, with the recipe of an algorithm that fits an
    environment."""

    def __init__(
        self, env_id: str, algorithm: str, path: Path | None, sets: Sequence[str]
    ) -> None:
        """The file at `path`, by default named after both, with `sets` ("key=value").
        Raises UsageError for a file that exists, LabError if the environment cannot be
        used."""
        self.env = plain_env(env_id, sets)
        """The environment's block."""
        self.recipe = choose_recipe(algorithm, self.env)
        self._env_id = env_id
        env_name = env_id.rpartition(":")[2].rpartition("/")[2]
        self.name = f"{algorithm}_{safe_name(env_name)}"
        """The name of the spec."""
        self.path = path or Path(f"{self.name}.yaml")
        if os.path.exists(self.path):
            raise UsageError(
                f"{self.path} exists: remove it, or choose another file with --out"
            )
        is_yaml = self.path.suffix in (".yaml", ".yml")
        if not is_yaml or not os.path.isdir(self.path.parent):
            raise UsageError(
                f"--out {self.path}: must be a .yaml file in a folder that exists"
            )
        self._sets = self.recipe.with_sets(sets)

    def write(self, facts: EnvFacts, imports: Sequence[str]) -> Spec:
        """Writes the file, with what a probe of the environment has found and the
        modules to import; returns its spec. Raises SpecError."""
        recipe = self.recipe
        try:
            loaded = load_spec(recipe.file, recipe.name, self._sets)
        except SpecError as error:
            problems = [self._with_fix(problem) for problem in error.problems]
            raise SpecError(error.where, problems) from None
        spec = loaded.model_copy(update={"name": self.name})
        settings = [parse_setting(text) for text in self._sets]
        raw = read_file(find_file(recipe.file))[recipe.name]
        raw, _ = apply_settings(raw, settings, lambda _: spec.to_json())
        title = (
            f"{spec.agent.algorithm.name} on {self._env_id}, by the recipe "
            f"{recipe.name}.",
            f"Observations: {facts.observations}",
            f"Actions: {facts.actions}",
        )
        write_atomically(self.path, draft(spec, raw, title, imports).encode())
        return spec

    def _with_fix(self, problem: Problem) -> Problem:
        """The problem; with what to type for a key of the recipe that the user's part
        does not know."""
        path = problem.path
        block = path.rpartition(".")[0]
        typed = [text.partition("=")[0] for text in self._sets]
        parts = [key for key in typed if key in (f"{block}.type", f"{block}.name")]
        is_unknown = problem.message.startswith("unknown key")
        if not is_unknown or path in typed or not parts:
            return problem
        key = parts[-1].rpartition(".")[2]
        fix = f"the recipe has it; give the whole block: -s '{block}={{\"{key}\": …}}'"
        return replace(problem, message=f"unknown key; {fix}")


def draft(
    spec: Spec,
    raw: Mapping[str, Any],
    title: Sequence[str],
    imports: Sequence[str] = (),
) -> str:
    """The YAML file of `raw`, which `spec` was parsed from, with `title` lines as its
    head. Each key of `raw` has its description as a comment. Keys are in the order of
    `raw`. A run of the file imports the modules `imports`."""
    head = "".join(f"# {line}\n" for line in title)
    if imports:
        head += f"{IMPORTS}: {_flow_text([*imports])}  # as with --import\n"
    body = "\n".join(_block(raw, spec, INDENT))
    return f"{head}{_flow_text(spec.name)}:\n{body}\n"


def _block(raw: Mapping[str, Any], model: object, indent: str) -> Iterator[str]:
    fields = type(model).model_fields if isinstance(model, BaseModel) else {}
    for key, value in raw.items():
        inner = getattr(model, key, None)
        if (
            isinstance(value, Mapping)
            and isinstance(inner, Block)
            and not isinstance(inner, SMALL)
        ):
            yield f"{indent}{key}:"
            yield from _block(value, inner, indent + INDENT)
            continue
        line = f"{indent}{key}: {_flow_text(value)}"
        description = None
        if key in fields and key not in PLAIN:
            description = fields[key].description
        if description is None:
            yield line
        elif len(line) + len(description) + 4 <= COLUMNS:
            yield f"{line}  # {description}"
        else:
            width = COLUMNS - len(indent) - 2
            yield from (
                f"{indent}# {part}" for part in textwrap.wrap(description, width)
            )
            yield line


def _flow_text(value: Any) -> str:
    whole: str = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, width=10**6
    )
    return whole[1:-2]
