"""`-s key=value`: fills `${var}`, or sets a value by its dotted path."""

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from functools import partial, reduce
from typing import Any, NamedTuple

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.registry import nearest_name
from slm_lab.spec.limits import check_text, nodes
from slm_lab.spec.read import json_value
from slm_lab.spec.schema.env import EnvSpec, arguments_beside
from slm_lab.spec.schema.messages import FOREIGN
from slm_lab.spec.schema.spec import Spec

VARIABLE = re.compile(r"\$\{([^{}]*)\}")

A_SLIP = 0.85
"""The similarity from which on a key of `env` counts as a misspelt key of the lab.
`frame_skip`, an argument of environments, has a similarity of 0.78 to `frame_op`."""


class Setting(NamedTuple):
    """One `-s key=value`, the value parsed as JSON or else a string."""

    key: str
    value: Any


def parse_setting(text: str) -> Setting:
    """ "a.b=3e-4" → ("a.b", 0.0003). Raises SpecError without "=" or key."""
    key, equals, value = text.partition("=")
    if not equals or "" in key.strip().split("."):
        raise SpecError.of("-s", f"-s {text}", "must be key=value")
    check_text(text, f"-s {key}")
    try:
        return Setting(key.strip(), json_value(value))
    except (ValueError, RecursionError):
        return Setting(key.strip(), value)


def variables(tree: Any) -> list[str]:
    """The names of all `${name}` in a tree, each once, in order."""
    names = (name for _, text in _strings(tree) for name in VARIABLE.findall(text))
    return list(dict.fromkeys(names))


def unfilled(tree: Any) -> list[Problem]:
    """One problem per string that still contains a `${name}`."""
    return [
        Problem(path, f"give it a value with -s {name}=…", text)
        for path, text in _strings(tree)
        for name in VARIABLE.findall(text)
    ]


def fill(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with every `${name}` replaced. If `${name}` is the whole string, the
    value keeps its type. Inside a longer string the value is formatted as text."""
    if isinstance(tree, Mapping):
        return {key: fill(item, values) for key, item in tree.items()}
    if isinstance(tree, list):
        return [fill(item, values) for item in tree]
    if not isinstance(tree, str):
        return tree
    whole = VARIABLE.fullmatch(tree)
    if whole and whole[1] in values:
        return values[whole[1]]
    return VARIABLE.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], tree)


def apply_settings(
    raw: Mapping[str, Any], settings: Sequence[Setting], defaults: Callable[[Any], Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """The spec with `settings` applied in order, and the problems of invalid settings.
    A key without a dot is a variable. If a setting sets a key of a block that the file
    omits, the block comes from `defaults`. This function takes a spec and returns its
    blocks with all defaults."""
    known = variables(raw)
    values = {s.key: s.value for s in settings if s.key in known}
    spec: dict[str, Any] = fill(raw, values)
    env = spec.get("env")
    if isinstance(env, Mapping) and isinstance(env.get("kwargs"), Mapping):
        spec["env"] = arguments_beside(env)
    problems: list[Problem] = []
    for setting in settings:
        if setting.key in known:
            continue
        try:
            if "." not in setting.key and setting.key not in ("search", "name"):
                raise SpecError(
                    "-s",
                    [_unknown_variable(setting.key, known, defaults(spec) or spec)],
                )
            _refuse_unlikely_env_key(spec, setting)
            path = _path_beside(setting.key)
            spec = with_value(spec, path, setting.value, partial(defaults, spec))
        except SpecError as error:
            problems.extend(error.problems)
    return spec, problems


def with_value(
    tree: Any, path: str, value: Any, defaults: Callable[[], Any] = dict
) -> Any:
    """A copy of `tree` with `value` at the dotted `path`. A block that is missing comes
    from `defaults`. Raises SpecError if the path leads through a value that is no block
    or list."""
    changed = deepcopy(tree)
    keys = _keys_along(tree, path)
    holder: Any = changed
    for depth, key in enumerate(keys):
        above = keys[:depth]
        if isinstance(holder, list) and not (
            key.isdecimal() and int(key) < len(holder)
        ):
            message = f"there is no such entry in a list of {len(holder)}"
            raise SpecError.of("-s", ".".join(keys[: depth + 1]), message)
        if not isinstance(holder, MutableMapping | list):
            raise SpecError.of(
                "-s", ".".join(above), f"is no block; it has no {key}", holder
            )
        inner = value
        if depth < len(keys) - 1:
            inner = _at(holder, key)
            if inner is None:
                block = reduce(_at, keys[: depth + 1], defaults())
                inner = deepcopy(block) if isinstance(block, Mapping) else {}
        if isinstance(holder, list):
            holder[int(key)] = inner
        else:
            holder[key] = inner
        holder = inner
    return changed


def _at(holder: Any, key: str) -> Any:
    """The value of a key of a block, or at a place in a list; None if there is
    none."""
    if isinstance(holder, Mapping):
        return holder.get(key)
    if isinstance(holder, list) and key.isdecimal():
        return next(iter(holder[int(key) :]), None)
    return None


def _keys_along(tree: Any, path: str) -> Sequence[str]:
    """The keys along a dotted path. A key of a block of `tree` may hold dots itself,
    such as the name of an observation's part."""
    words = path.split(".")
    keys: list[str] = []
    block = tree
    while words:
        key = words[0]
        if isinstance(block, Mapping):
            longer = (".".join(words[:end]) for end in range(len(words), 1, -1))
            key = next((name for name in longer if name in block), key)
        block = _at(block, key)
        keys.append(key)
        words = words[key.count(".") + 1 :]
    return keys


KWARGS = "env.kwargs."


def _path_beside(path: str) -> str:
    """The path of a setting. An argument in `kwargs` stands beside it, see
    `arguments_beside`."""
    argument = path.removeprefix(KWARGS)
    name = argument.partition(".")[0]
    if path.startswith(KWARGS) and name not in EnvSpec.model_fields:
        return f"env.{argument}"
    return path


def _unknown_variable(
    key: str, known: Sequence[str], spec: Mapping[str, Any]
) -> Problem:
    if key in Spec.model_fields:
        return Problem(
            f"-s {key}", f"is a whole block; set a key of it, as {key}.name=…"
        )
    nearest = nearest_name(key, list(known))
    hint = "a key of the spec is written with dots"
    if nearest:
        hint = f"did you mean {nearest}?"
    hint = next(
        (f"use {path}" for path, _ in nodes(spec) if path.endswith(f".{key}")), hint
    )
    return Problem(f"-s {key}", f"the spec has no ${{{key}}}; {FOREIGN.get(key, hint)}")


def _refuse_unlikely_env_key(spec: Mapping[str, Any], setting: Setting) -> None:
    """Rejects a misspelt key of the lab in `env`, where other keys are environment
    arguments."""
    parts = setting.key.split(".")
    env = spec.get("env")
    if len(parts) != 2 or parts[0] != "env" or not isinstance(env, Mapping):
        return
    if parts[1] in EnvSpec.model_fields or parts[1] in env:
        return
    nearest = nearest_name(parts[1], list(EnvSpec.model_fields), A_SLIP)
    if nearest:
        message = f"unknown key; did you mean {nearest}?"
        raise SpecError.of("-s", setting.key, message, setting.value)


def _strings(tree: Any) -> Iterator[tuple[str, str]]:
    return ((path, value) for path, value in nodes(tree) if isinstance(value, str))
