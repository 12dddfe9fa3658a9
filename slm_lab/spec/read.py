"""Reading a spec file: JSON (trailing commas allowed, as in many old files) or YAML.

A key given twice, a syntax error, NaN: one SpecError, with the line where there is one.
"""

import datetime
import json
import math
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.registry import nearest_name

SHIPPED = Path(__file__).parent
SUFFIXES = (".json", ".yaml", ".yml")
NOT_SPECS = frozenset({"torch_table.json"})

JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n')
TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
YAML_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)


def shipped_files() -> list[Path]:
    """The spec files that come with the lab, demo first."""
    found = [path for path in SHIPPED.rglob("*") if path.suffix in SUFFIXES]
    specs = [path for path in found if path.name not in NOT_SPECS]
    return sorted(specs, key=lambda path: (len(path.parts), path))


def shipped_name(path: Path) -> str:
    """How messages call a file: relative to the shipped ones if it is one of them."""
    return path.relative_to(SHIPPED).as_posix() if path.is_relative_to(SHIPPED) else path.name


def find_file(file: str | Path) -> Path:
    """The file that is meant: a path, or a shipped one as "demo.json", "demo", "ppo_cartpole",
    "benchmark/ppo/ppo_cartpole.json". Raises SpecError with the nearest name."""
    path = Path(file)
    if _is_file(path):
        return path
    names: dict[str, Path] = {}
    for shipped in shipped_files():
        relative = shipped.relative_to(SHIPPED)
        for name in (
            relative.as_posix(),
            relative.with_suffix("").as_posix(),
            shipped.stem,
            shipped.name,
        ):
            names.setdefault(name, shipped)
    if str(file) in names:
        return names[str(file)]
    nearest = nearest_name(str(file), list(names))
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise SpecError(str(file), [Problem("file", f"there is no such file, here or shipped{hint}")])


def read_file(path: Path) -> dict[str, Any]:
    """The content of a spec file, a mapping. Raises SpecError."""
    where = shipped_name(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(where, [Problem("file", f"cannot be read: {error}")]) from None
    try:
        content = _yaml(text, where) if path.suffix in (".yaml", ".yml") else _json(text, where)
    except RecursionError:
        raise SpecError(where, [Problem("file", "is nested too deeply")]) from None
    if not isinstance(content, dict):
        raise SpecError(where, [Problem("file", "must hold {spec_name: {agent, env, meta}, …}")])
    return content


def json_value(text: str) -> Any:
    """A value as JSON, in which NaN and Infinity do not exist. Raises ValueError."""
    return json.loads(text, parse_constant=_no_constant)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the file system, or with a zero byte
        return False


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON knows")


def _json(text: str, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise _twice(text, where)
        return mapping

    plain = TRAILING_COMMA.sub(lambda match: match[1] or " ", text)
    try:
        return json.loads(plain, object_pairs_hook=unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} (column {error.colno})"
        raise SpecError(where, [Problem(f"line {error.lineno}", message)]) from None
    except ValueError as error:
        raise SpecError(where, [Problem("file", f"is not JSON: {error}")]) from None


def _twice(text: str, where: str) -> SpecError:
    """The error for the first key that an object of a JSON text holds twice, with its line."""
    line, last, objects = 1, "", list[set[str] | None]()
    for match in JSON_TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            continue
        if token in "{[":
            objects.append(set() if token == "{" else None)
        elif token in "}]":
            objects.pop()
        elif token == ":" and (keys := objects[-1]) is not None:
            if last in keys:
                return SpecError(where, [Problem(f"line {line}", f"the key {last} is given twice")])
            keys.add(last)
        last = token
    return SpecError(where, [Problem("file", "a key is given twice")])


def _yaml(text: str, where: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML 1.1 less its traps: 3e-4 is a number, 1:30 and dates are not, keys are unique."""

        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Hashable, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        message = f'the key "{key.value}" is given twice'
                        line = f"line {key.start_mark.line + 1}"
                        raise SpecError(where, [Problem(line, message)])
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    dropped = ("tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rows if tag not in dropped]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    whole = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", whole, list("-+0123456789"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", YAML_FLOAT, list("-+0123456789."))
    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}" if mark else "file"
        raise SpecError(where, [Problem(line, f"is not YAML: {error.problem}")]) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise SpecError(where, [Problem("file", f"is not YAML: {error}")]) from None


def not_json(value: Any, path: str = "") -> list[Problem]:
    """What in a tree no JSON file could hold: NaN, infinity, dates, keys that are no strings."""
    if isinstance(value, Mapping):
        problems = []
        for key, item in value.items():
            here = f"{path}.{key}" if path else str(key)
            if not isinstance(key, str):
                problems.append(Problem(here, f"a key must be a string; write '{key}' in quotes"))
            problems.extend(not_json(item, here))
        return problems
    if isinstance(value, list | tuple):
        return [p for i, item in enumerate(value) for p in not_json(item, f"{path}.{i}")]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(path, "must be a finite number", value, has_value=True)]
    if isinstance(value, int) and abs(value) > 2**63:
        return [Problem(path, "must be less than 2^63", value > 0, has_value=False)]
    if isinstance(value, datetime.date | bytes | set):
        return [Problem(path, "must be a value of JSON", str(value), has_value=True)]
    return []
