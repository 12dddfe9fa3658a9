"""Spaces with parts, Dict and Tuple, at any depth."""

from collections.abc import Iterator, Mapping
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
    inner = space.spaces if isinstance(space, COMPOSITE) else ()
    for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from parts_of(part, (*path, str(key)))
    if not inner:
        yield path, space


def name_of_part(path: tuple[str, ...]) -> str:
    """The name of the part at `path`, as specs write it."""
    return ".".join(path)


def nested(space: AnySpace, values: Iterator[Any]) -> Any:
    """The next of `values`, one for each of `parts_of`, as dicts and tuples like those
    of `space`."""
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
