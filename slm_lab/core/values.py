"""Keys of specs by their dotted paths, and short texts for both."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from slm_lab.core.text import shortened

_NEEDS_MORE = frozenset(
    ("name", "type", "start_val", "end_val", "start_step", "end_step", "frame", "value")
)
"""Ends of paths that need the part before them."""
_LONGEST = 24  # letters of a value


def leaves(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values in nested blocks, by dotted path; an empty block is a value."""
    values: dict[str, Any] = {}
    for key, value in nested.items():
        path = f"{above}.{key}".removeprefix(".")
        if isinstance(value, Mapping) and value:
            values |= leaves(value, path)
        else:
            values[path] = value
    return values


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest end of each path that no other path has, by path:
    agent.net.optim_spec.lr is "lr". An end like name, start_val or an index of a list
    includes the part before it."""
    parts = {path: path.split(".") for path in paths}
    return {path: _short_name(path, parts) for path in paths}


def _short_name(path: str, parts: Mapping[str, Sequence[str]]) -> str:
    mine = parts[path]
    others = [other_parts for other, other_parts in parts.items() if other != path]
    fewest = 1
    while fewest < len(mine) and (
        mine[-fewest] in _NEEDS_MORE or mine[-fewest].isdecimal()
    ):
        fewest += 1
    for count in range(fewest, len(mine)):
        if all(other_parts[-count:] != mine[-count:] for other_parts in others):
            return ".".join(mine[-count:])
    return path


def value_text(value: Any) -> str:
    """A value of a variable in a few letters: 0.0003, true, null, "64, 64" of a list.
    Numbers have three digits. A block is shown by its `name` and what else it holds."""
    return shortened(_text(value), _LONGEST)


def _text(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value).replace("-", "−")
        case float():
            return number_text(value)
        case Mapping():
            parts = [f"{key} {_text(item)}" for key, item in value.items()]
            if "name" in value:
                parts.remove(f"name {_text(value['name'])}")
                parts.insert(0, str(value["name"]))
            return ", ".join(parts)
        case list() | tuple():
            return ", ".join(map(_item_text, value))
        case _:
            return str(value)


def _item_text(value: Any) -> str:
    text = _text(value)
    if isinstance(value, list | tuple):
        return f"[{text}]"
    return text


def number_text(value: float | None, count: int = 3) -> str:
    """A number with `count` digits: 0.0003, 3e−5, 12.5, 1.2e6; "–" if the value is
    missing."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    digits, exponent = f"{value:.{count - 1}e}".split("e")
    if not -5 < int(exponent) < 6:
        mantissa = digits.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    shown = f"{value:.{count}g}" if int(exponent) < count else f"{value:.0f}"
    return shown.replace("-", "−")
