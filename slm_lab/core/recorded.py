"""A run's record of the world, as JSON that all readers of the lab accept.

Arguments of environments, command lines, paths, notes and versions may be anything. The
bounds here are narrower than the bounds of the readers in `spec.limits`."""

import re
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

MOST_VALUES = 1000
"""Values of a record, and entries of one of its lists."""
MOST_LEVELS = 12
MOST_KEYS = 100
LONGEST_KEY = 100
LONGEST_TEXT = 2000
LARGEST_INT = 2**63
LARGEST_NUMBER = 1e300
"""Larger numbers in a record count as damaged."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def recordable(value: object, most: int = MOST_VALUES) -> Any:
    """`value` as bounded JSON of about `most` values. Texts are short and have no
    halves of surrogate pairs, numbers are finite, keys are strings. What JSON lacks
    becomes text; "…" marks a cut."""
    return _Recorder(most).record(value, 0)


def recordable_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, cut and encodable as UTF-8."""
    if len(text) > longest:
        text = f"{text[:longest]}…"
    return text.encode(errors="backslashreplace").decode()


def finite(number: float) -> float | None:
    """The number as JSON has it: None for NaN and infinities."""
    if isfinite(number):
        return number
    return None


def value_at(tree: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path of recorded JSON, which may be damaged. `default` if
    there is no value of the default's type. A default that is a float stands for any
    finite number, None for any value."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    if isinstance(default, float):
        is_number = isinstance(tree, int | float) and abs(tree) < LARGEST_NUMBER
        if is_number:
            return tree
        return default
    has_type = default is None or isinstance(tree, type(default))
    if has_type:
        return tree
    return default


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str = ""
) -> list[tuple[str, Any, Any]]:
    """Dotted path, old and new value of every leaf that differs between two nested
    specs."""
    differing = []
    for key in dict.fromkeys([*old, *new]):
        here = f"{path}.{key}" if path else str(key)
        before = old.get(key)
        after = new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            differing += differences(before, after, here)
        elif before != after:
            differing.append((here, before, after))
    return differing


class _Recorder:
    def __init__(self, most: int) -> None:
        self._left = most

    def record(self, value: object, level: int) -> Any:
        self._left -= 1
        if isinstance(value, np.generic | np.ndarray) and value.size <= MOST_VALUES:
            value = value.tolist()
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)  # the same in every process
        if value is None or isinstance(value, int | float | str):
            return _scalar(value)
        if level == MOST_LEVELS or self._left <= 0:
            return f"… a {type(value).__name__}"
        if isinstance(value, dict):
            return self._block(value, level + 1)
        if isinstance(value, list | tuple):
            return self._list(value, level + 1)
        return _description(value)

    def _block(self, block: dict[Any, Any], level: int) -> dict[str, Any]:
        shown = min(len(block), MOST_KEYS)
        recorded = {
            recordable_text(str(key), LONGEST_KEY): self.record(value, level)
            for key, value in islice(block.items(), shown)
        }
        if shown == len(block):
            return recorded
        return {**recorded, "…": f"{len(block) - shown} more"}

    def _list(self, entries: list[Any] | tuple[Any, ...], level: int) -> list[Any]:
        shown = min(len(entries), self._left)
        recorded = [self.record(entry, level) for entry in entries[:shown]]
        if shown == len(entries):
            return recorded
        return [*recorded, f"… {len(entries) - shown} more"]


def _scalar(value: int | float | str | None) -> int | float | str | None:
    if isinstance(value, str):
        return recordable_text(str(value))
    if isinstance(value, float):
        if isfinite(value):
            return float(value)
        return str(float(value))
    if value is None or abs(value) < LARGEST_INT:
        return value
    return recordable_text(f"{int(value):#x}")


def _description(value: object) -> str:
    """A function or class by its name; anything else as Python shows it, without
    addresses."""
    try:
        if isinstance(value, np.ndarray):
            return f"an array of shape {value.shape} and type {value.dtype}"
        name = getattr(value, "__qualname__", None)
        if isinstance(name, str):
            return recordable_text(f"{getattr(value, '__module__', None)}.{name}")
        return _ADDRESS.sub("", recordable_text(repr(value)))
    except Exception as error:  # the object's own code
        return f"a {type(value).__name__} that cannot be shown: {type(error).__name__}"
