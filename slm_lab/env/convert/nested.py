"""Spaces with parts, Dict and Tuple, at any depth."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from slm_lab.env.interface import AnySpace

COMPOSITE = (spaces.Dict, spaces.Tuple)
"""The spaces that have parts."""


def parts_of(
    space: AnySpace, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], AnySpace]]:
    """The innermost spaces of `space`, each with the keys of its path."""
    is_innermost = True
    for key, part in children(space):
        is_innermost = False
        yield from parts_of(part, (*path, str(key)))
    if is_innermost:
        yield path, space


def children(space: AnySpace) -> Iterator[tuple[Any, AnySpace]]:
    """The parts directly below `space`, each with its key; none if it has no parts."""
    if isinstance(space, spaces.Dict):
        yield from space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        yield from enumerate(space.spaces)


def name_of_part(path: tuple[str, ...]) -> str:
    """The name of the part at `path`, as specs write it."""
    return ".".join(path)


def path_of(space: AnySpace, name: str) -> tuple[Any, ...] | None:
    """The keys that lead to the part called `name`, which may have parts itself; None
    if there is none. A key may have dots."""
    for key, part in children(space):
        if name == str(key):
            return (key,)
        if name.startswith(f"{key}."):
            rest = path_of(part, name.removeprefix(f"{key}."))
            if rest is not None:
                return (key, *rest)
    return None


def part_at(space: AnySpace, path: Sequence[Any]) -> AnySpace:
    """The part of `space` at a path that exists."""
    for key in path:
        assert isinstance(space, COMPOSITE)
        space = space[key]
    return space


def parts_without(space: AnySpace, path: Sequence[Any]) -> dict[str, AnySpace]:
    """The parts directly below `space` by name, without the part at `path`. A Dict or
    Tuple that had only this part is left out too. A Tuple that has lost a part is a
    Dict, so that names stay."""
    kept: dict[str, AnySpace] = {}
    for key, part in children(space):
        if key not in path[:1]:
            kept[str(key)] = part
        elif len(path) > 1:
            inner = parts_without(part, path[1:])
            if inner:
                kept[str(key)] = spaces.Dict([*inner.items()])
    return kept


def values_without(value: Any, path: Sequence[Any]) -> dict[str, Any]:
    """The parts of an element of a space, or of a batch, in the way of `parts_without`
    for spaces. Empty if `value` has no parts."""
    pairs: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, Mapping):
        pairs = iter(value.items())
    elif isinstance(value, Sequence):
        pairs = enumerate(value)
    kept: dict[str, Any] = {}
    for key, part in pairs:
        if key not in path[:1]:
            kept[str(key)] = part
        elif len(path) > 1:
            inner = values_without(part, path[1:])
            if inner:
                kept[str(key)] = inner
    return kept


def nested(space: AnySpace, values: Iterator[Any]) -> Any:
    """Takes one of `values` for each of `parts_of`, and nests them in dicts and tuples
    like `space`."""
    if isinstance(space, spaces.Dict):
        return {key: nested(part, values) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested(part, values) for part in space.spaces)
    return next(values)


def element(space: AnySpace, batch: Any, index: int) -> Any:
    """One of a batch of elements of `space`, whose innermost parts are arrays (N,
    …)."""
    if isinstance(space, spaces.Dict):
        return {
            key: element(part, batch[key], index) for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return tuple(element(part, values, index) for part, values in pairs)
    if isinstance(space, spaces.Box):
        return batch[index, ...]  # an array, even of the shape ()
    return batch[index]


def batch_of_one(space: AnySpace, single: Any) -> Any:
    """An element of `space` as a batch: `element` gives it back."""
    if isinstance(space, spaces.Dict):
        return {
            key: batch_of_one(part, single[key]) for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, single, strict=True)
        return tuple(batch_of_one(part, value) for part, value in pairs)
    return np.asarray(single)[None]
