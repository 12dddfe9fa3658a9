"""Finds and reads spec files, JSON or YAML.

A duplicate key, a syntax error, NaN or a too large file raises SpecError, with the line
if known. JSON may have comments and trailing commas.
"""

import datetime
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.recorded import recordable
from slm_lab.core.registry import nearest_name
from slm_lab.spec.limits import (
    JSON_BYTES,
    JSON_VALUES,
    YAML_BYTES,
    check_extent,
    check_text,
    children,
    nodes,
    read_bounded,
    too_deep,
)

STRING = r'"(?:[^"\\]++|\\.)*+"?'
"""Matches a string, also an unterminated one, so that it is scanned once, not from each
quote in it."""
OPEN_COMMENT = r"/\*(?:[^*]++|\*(?!/))*+"
COMMENT = re.compile(
    rf"({STRING}|{OPEN_COMMENT}\Z)|//[^\r\n]*+|{OPEN_COMMENT}\*/", re.DOTALL
)
"""Its group matches what stays: strings, and a comment without an end, which is an
error there."""
TRAILING_COMMA = re.compile(rf"({STRING})|,(?=\s*+[}}\]])", re.DOTALL)


def parse_json(text: str, where: str) -> Any:
    """The content of a JSON text of the file `where`. Raises SpecError with the
    line."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise SpecError(where, [_fault(plain, where)])
        return mapping

    def no_number(_: str) -> Any:
        raise SpecError(where, [_fault(plain, where)])

    without_comments = COMMENT.sub(lambda match: match[1] or _blank(match[0]), text)
    plain = TRAILING_COMMA.sub(lambda match: match[1] or " ", without_comments)
    try:
        content = json.loads(plain, object_pairs_hook=unique, parse_constant=no_number)
    except json.JSONDecodeError as error:
        if not plain.strip():
            raise SpecError.of(where, "file", "is empty") from None
        message = f"is not JSON: {error.msg} (column {error.colno})"
        raise SpecError.of(where, f"line {error.lineno}", message) from None
    except RecursionError:
        raise too_deep(where) from None
    except ValueError:  # Python limits the digits of an int
        message = "holds a whole number of thousands of digits"
        raise SpecError.of(where, "file", message) from None
    check_extent(content, children, JSON_VALUES, where)
    return content


def json_value(text: str) -> Any:
    """Parses a JSON value, without NaN and Infinity. Raises ValueError."""

    def no_number(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    return json.loads(text, parse_constant=no_number)


def _blank(comment: str) -> str:
    """The comment as spaces and line breaks, so that later places keep their line and
    column."""
    return re.sub(r"[^\n]", " ", comment)


def _fault(text: str, where: str) -> Problem:
    """The first duplicate key, NaN or Infinity. Its line is known as far as YAML may be
    read."""
    from slm_lab.spec.yaml_text import first_fault

    problem = None
    if len(text) <= YAML_BYTES:
        problem = first_fault(text.replace("\t", " "), where)
    return problem or Problem("file", "has a key twice, or a number that is not finite")


SHIPPED = Path(__file__).parent
SUFFIXES = (".json", ".yaml", ".yml")
IN_A_CLONE = "slm_lab/spec/"
RECORD_BYTES = 16_000_000
RECORD_VALUES = 20_000
"""Limits of a run's spec file, and of a record in it, whose readers need less than the
file."""
A_SLIP = 0.75
"""The similarity from which on a name counts as a misspelt name of a shipped file."""
NOT_SPECS = frozenset({"torch_table.json", "foreign_words.json"})
REPLACED = (
    (
        re.compile(r"(.+)_roboschool"),
        r"\1_mujoco",
        "Roboschool is gone, and MuJoCo simulates its robots",
    ),
    (
        re.compile(
            r"(.+)_(?:ant|half_?cheetah|hopper|humanoid(?:_standup)?|inverted_(?:double_)?pendulum"
            r"|pusher|reacher|swimmer|walker2d)(?:_pybullet)?"
        ),
        r"\1_mujoco",
        "MuJoCo's environments have one file, with a spec of each or -s env=Hopper-v5",
    ),
    (
        re.compile(r"(.+)_(?:breakout|pong|qbert|videopinball)"),
        r"\1_atari",
        "Atari games have one file, with -s env=ALE/Qbert-v5",
    ),
)
"""Stems of SLM Lab's spec files that are not shipped, the stem of the file that
replaces each, and why. A row counts only if that file is shipped."""


def shipped_files() -> list[Path]:
    """The spec files shipped with the lab, demo first."""
    paths = [path for path in SHIPPED.rglob("*") if path.suffix in SUFFIXES]
    specs = [path for path in paths if path.name not in NOT_SPECS]
    return sorted(specs, key=lambda path: (len(path.parts), path))


def shipped_name(path: Path) -> str:
    """The name of a file in messages; for a shipped file, its path among the shipped
    files. That of a run has its folder: all runs of a spec have files of this name."""
    if path.is_relative_to(SHIPPED):
        return path.relative_to(SHIPPED).as_posix()
    if path.stem.endswith("_spec"):
        return str(path)
    return path.name


def find_file(file: str | Path) -> Path:
    """The path of a spec file: an existing path, or the name of a shipped file. Such
    names are "demo.json", "demo", "ppo_cartpole" and "benchmark/ppo/ppo_cartpole.json".
    They may begin with "slm_lab/spec/", as from the root of a clone. Raises SpecError
    with the nearest name."""
    path = Path(file)
    if os.path.isfile(path):  # unlike the method, false for a name too long
        return path
    names: dict[str, Path] = {}
    for shipped in shipped_files():
        relative = shipped.relative_to(SHIPPED)
        for name in (relative, relative.with_suffix(""), shipped.stem, shipped.name):
            names.setdefault(Path(name).as_posix(), shipped)
    relative_name = path.as_posix().removeprefix(IN_A_CLONE)
    if relative_name in names:
        return names[relative_name]
    # Compares only stems, because common folders and suffixes would make all names
    # similar.
    stems = {shipped.stem: shipped.name for shipped in names.values()}
    beside = path.parent.glob("*.[jy]*") if os.path.isdir(path.parent) else ()
    here = {file.stem: str(file) for file in beside if file.suffix in SUFFIXES}
    nearest = nearest_name(path.stem, [*stems, *here], A_SLIP)
    has_suffix = nearest in here or (nearest is not None and path.suffix)
    suggestion = nearest
    if has_suffix:
        suggestion = (stems | here)[str(nearest)]
    successor = _successor(path.stem, stems)
    if successor:
        hint = f"; {successor}"
    elif suggestion:
        hint = f"; did you mean {suggestion}?"
    elif re.search(r"-v\d+$", path.name):
        hint = f"; write the algorithm first: slm-lab run ppo {file}"
    else:
        hint = ""
    message = "is a folder"
    if not os.path.isdir(path):
        message = f"there is no such file, here or shipped{hint}"
    raise SpecError.of(str(file), "file", message)


def _successor(stem: str, shipped: Mapping[str, str]) -> str | None:
    """The file that replaces SLM Lab's file of this stem, and why; None for any other
    stem. `shipped` has the names of shipped files by their stems."""
    for pattern, replacement, why in REPLACED:
        match = pattern.fullmatch(stem)
        name = None
        if match is not None:
            name = shipped.get(match.expand(replacement))
        if name is not None:
            return f"{name} replaces it: {why}"
    return None


def read_file(path: Path) -> dict[str, Any]:
    """The content of a spec file, a mapping. Raises SpecError. What a run has recorded
    beside its spec is cut if it exceeds the limits of spec files."""
    try:
        return _read_strictly(path)
    except SpecError:
        content = _with_records_cut(path)
        if content is None:
            raise
        return content


def _with_records_cut(path: Path) -> dict[str, Any] | None:
    """The content of a run's spec file whose records alone exceed the limits. The
    records are the blocks that begin with "_". None for any other file."""
    where = shipped_name(path)
    if path.suffix != ".json":
        return None
    try:
        text = read_bounded(path, RECORD_BYTES, where)
        content = json.loads(text, object_pairs_hook=_unique) if '"_' in text else {}
        records = {key for key, block in content.items() if key[:1] == "_" and block}
        if not records:
            return None
        for key in records:
            content[key] = recordable(content[key], RECORD_VALUES)
        content = parse_json(json.dumps(content), where)
        check_text(content, where)
    except (SpecError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return dict(content)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    block = dict(pairs)
    if len(block) < len(pairs):
        raise ValueError("a key is given twice")
    return block


def _read_strictly(path: Path) -> dict[str, Any]:
    where = shipped_name(path)
    if path.suffix in (".yaml", ".yml"):
        from slm_lab.spec.yaml_text import parse_yaml

        content = parse_yaml(read_bounded(path, YAML_BYTES, where), where)
    else:
        content = parse_json(read_bounded(path, JSON_BYTES, where), where)
    if not isinstance(content, dict):
        raise SpecError.of(
            where, "file", "must hold {spec_name: {agent, env, meta}, …}"
        )
    check_text(content, where)
    return content


def json_problems(tree: Mapping[str, Any]) -> list[Problem]:
    """Problems of values that JSON cannot hold: NaN, infinity, dates, keys that are no
    strings."""
    problems = []
    for path, value in nodes(tree):
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    here = f"{path}.{key}" if path else str(key)
                    message = f"a key must be a string; write '{key}' in quotes"
                    problems.append(Problem(here, message))
        elif isinstance(value, float) and not math.isfinite(value):
            problems.append(Problem(path, "must be a finite number", value))
        elif isinstance(value, int) and abs(value) >= 2**63:
            problems.append(Problem(path, "must be less than 2^63"))
        elif isinstance(value, datetime.date | bytes | set):
            problems.append(Problem(path, "must be a value of JSON", str(value)))
    return problems
