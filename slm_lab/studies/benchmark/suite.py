"""The file of a suite: what a benchmark trains, and with which seeds.

seeds: [11, 12, 13]
set: {env.max_frame: 100000}
runs:
  - specs: [ppo, a2c, dqn, sac, crossq]
    envs: [CartPole-v1, Acrobot-v1, LunarLander-v3]
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.registry import nearest_name
from slm_lab.spec.read import read_file
from slm_lab.spec.schema.block import Block, problems_of
from slm_lab.storage.run_dir import safe_name

SHIPPED = Path(__file__).parent / "suites"

Value = TypeVar("Value", int, str)
Words = Annotated[list[str], Field(min_length=1)]


def _distinct(seeds: list[int]) -> list[int]:
    """Raises ValueError if a seed is there twice: it is one training, and would count
    as two."""
    repeated = _first_repeated(seeds)
    if repeated is not None:
        raise ValueError(f"has {repeated} twice; each seed is one training")
    return seeds


Seeds = Annotated[
    list[Annotated[int, Field(ge=0)]],
    Field(min_length=1),
    AfterValidator(_distinct),
]


class SuiteRuns(Block):
    """Some rows of a suite: each of `specs` in each of `envs`."""

    specs: Words = Field(
        description='shipped specs or algorithms, "FILE", or "FILE NAME"'
    )
    envs: list[str] = Field(
        [], description="environments; without any, those of the specs"
    )
    set: Mapping[str, Any] = Field({}, description="changes of these specs, as -s")
    seeds: Seeds | None = Field(None, description="seeds in place of the suite's")
    name: str | None = Field(
        None,
        description="what is compared over environments; else the spec that `envs` "
        "gives several, or the algorithm",
    )
    bound: float | None = Field(
        None, description="the final return that every seed must reach"
    )


class SuiteFile(Block):
    """The content of a suite's file."""

    seeds: Seeds = Field(description="a training of every row for each of them")
    episodes: Annotated[int, Field(ge=0)] = Field(
        100, description="greedy episodes after each training; 0: none"
    )
    set: Mapping[str, Any] = Field({}, description="changes of every spec, as -s")
    runs: list[SuiteRuns] = Field(min_length=1, description="the rows")


class SuiteRow(NamedTuple):
    """One spec in one environment, before its words are looked up."""

    name: str
    """Unique in the suite."""
    method: str | None
    """What is compared over environments; None: the algorithm of its spec."""
    file: str
    """A file, the name of a shipped one, or an algorithm."""
    spec_name: str | None
    env: str | None
    """The environment in place of the spec's own."""
    sets: tuple[str, ...]
    """Each "key=value", as -s."""
    seeds: tuple[int, ...]
    bound: float | None


class Suite(NamedTuple):
    """A suite with its rows."""

    name: str
    rows: tuple[SuiteRow, ...]
    episodes: int


def shipped_suites() -> list[str]:
    """The names of the suites that come with the lab."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml"))


def read_suite(word: str) -> Suite:
    """The suite in a file, or the shipped one of this name. Raises UsageError if there
    is none, SpecError with every problem of the file."""
    file = Path(word)
    if word in shipped_suites() and not file.is_file():
        file = SHIPPED / f"{word}.yaml"
    if not file.is_file():
        message = f"there is no suite {word}; shipped are {', '.join(shipped_suites())}"
        nearest = nearest_name(word, shipped_suites())
        if nearest:
            message = f"there is no suite {word}; did you mean {nearest}?"
        raise UsageError(message)
    try:
        content = SuiteFile.model_validate(read_file(file))
    except ValidationError as error:
        raise SpecError(word, problems_of(error)) from None
    rows = [row for runs in content.runs for row in _rows(content, runs)]
    # names that differ in other letters alone have the same files
    repeated = _first_repeated([safe_name(row.name) for row in rows])
    if repeated is not None:
        names = {row.name: None for row in rows if safe_name(row.name) == repeated}
        quoted = " and ".join(f'"{name}"' for name in names)
        message = f"has {quoted} twice; give one of these runs a name"
        if len(names) > 1:
            message = f"has {quoted}, whose files have one name; rename one of them"
        raise SpecError.of(word, "runs", message)
    return Suite(file.stem, tuple(rows), content.episodes)


def _rows(suite: SuiteFile, runs: SuiteRuns) -> Iterator[SuiteRow]:
    sets = [
        f"{key}={json.dumps(value)}" for key, value in {**suite.set, **runs.set}.items()
    ]
    envs: list[str | None] = [*runs.envs] or [None]
    for words in runs.specs:
        file, _, spec_name = words.partition(" ")
        what = runs.name or spec_name or Path(file).stem
        method = what if runs.envs else runs.name
        for env in envs:
            yield SuiteRow(
                name=what if env is None else f"{what} {env}",
                method=method,
                file=file,
                spec_name=spec_name or None,
                env=env,
                sets=tuple(sets),
                seeds=tuple(runs.seeds or suite.seeds),
                bound=runs.bound,
            )


def _first_repeated(values: Sequence[Value]) -> Value | None:
    seen: set[Value] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
