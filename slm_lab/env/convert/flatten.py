"""Observations with parts: a Dict or a Tuple becomes one float32 vector."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.errors import SpecError
from slm_lab.core.types import Array
from slm_lab.env.convert.image import is_image
from slm_lab.env.convert.observation import (
    SUPPORTED,
    float32_box,
    is_empty,
    unsupported,
)
from slm_lab.env.interface import (
    AnySpace,
    Env,
    breaks_its_space,
    check_numbers,
    obs_name,
    typed,
)

FLOAT32 = np.dtype(np.float32)

COMPOSITE = (spaces.Dict, spaces.Tuple)
"""The spaces whose observations have parts, at any depth."""


class FlatObservation(
    gymnasium.ObservationWrapper[Array, Any, Any], RecordConstructorArgs
):
    """`gymnasium.spaces.flatten` of every observation, as a float32 vector (D,)."""

    def __init__(self, env: Env, env_name: str) -> None:
        RecordConstructorArgs.__init__(self, env_name=env_name)
        super().__init__(env)
        self._env_name = env_name
        self.parts = env.observation_space
        """The space of the observations with parts."""
        flat = spaces.flatten_space(self.parts)
        assert isinstance(flat, spaces.Box)
        self.observation_space = float32_box(flat)

    @override
    def observation(self, observation: Any) -> Array:
        """One observation with parts → (D,). Raises LabError if they do not match the
        space."""
        try:
            parts = [
                (path, _flat_part(path, part, observed))
                for path, part, observed in leaves(self.parts, observation)
            ]
            return joined(parts, axis=0)
        except ValueError as error:
            raise breaks_its_space(self._env_name, error) from None


def _flat_part(path: tuple[str, ...], part: AnySpace, observed: Any) -> Array:
    array = as_numbers(as_array(observed, path), part, path)
    if array.shape != part.shape and array.size != math.prod(part.shape or ()):
        raise ValueError(
            f"{obs_name(path)} has the shape {array.shape}, its space {part.shape}"
        )
    return np.asarray(spaces.flatten(part, array))


def joined(parts: Iterable[tuple[tuple[str, ...], Array]], axis: int) -> Array:
    """Flat parts with their paths, joined along `axis`, as float32. Raises ValueError
    if float32 cannot hold a value."""
    flat = dict(parts)
    whole = np.concatenate([*flat.values()], axis)
    try:
        # Not the type of Gymnasium's result, which is bytes if all parts are: nets
        # treat bytes as images.
        return typed(whole, FLOAT32)
    except ValueError:
        for path, array in flat.items():
            typed(array, FLOAT32, path)
        raise


def flatten_parts(env: Env, env_name: str) -> Env:
    """`env`, wrapped if its observations have parts. A Dict of one image becomes the
    image. Raises SpecError with every observation, or part of one, that is no vector of
    numbers."""
    space = env.observation_space
    unusable = {
        path: part
        for path, part in parts_of(space)
        if not isinstance(part, SUPPORTED) or is_empty(part)
    }
    if unusable:
        usable = [
            path[0]
            for path, _ in parts_of(space)
            if path not in unusable and len(path) == 1
        ]
        problems = [
            unsupported(part, env_name, path, usable) for path, part in unusable.items()
        ]
        raise SpecError("env", problems)
    if isinstance(space, spaces.Dict) and len(space) == 1:
        ((key, part),) = space.items()
        if is_image(part):
            return gymnasium.wrappers.TransformObservation(env, itemgetter(key), part)
    if isinstance(space, COMPOSITE):
        return FlatObservation(env, env_name)
    return env


def parts_of(
    space: AnySpace, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], AnySpace]]:
    """The innermost spaces of `space`, each with the keys of its path."""
    inner = space.spaces if isinstance(space, COMPOSITE) else ()
    for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from parts_of(part, (*path, str(key)))
    if not inner:
        yield path, space


def leaves(
    space: AnySpace, observed: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], AnySpace, Any]]:
    """The innermost spaces of `space`, each with its path and its part of `observed`:
    of one observation, or of a batch. Raises ValueError if `observed` has other
    parts."""
    if isinstance(space, spaces.Dict):
        parts: list[tuple[Any, AnySpace]] = list(space.spaces.items())
        if not isinstance(observed, Mapping):
            kind = type(observed).__name__
            raise ValueError(
                f"{obs_name(path)} is of the type {kind}, its space a Dict"
            )
        for key, _ in parts:
            if key not in observed:
                name = obs_name((*path, str(key)))
                raise ValueError(f"{name} is missing; there are {_listed(observed)}")
        for key in observed:
            if key not in space.spaces:
                name = obs_name((*path, str(key)))
                raise ValueError(f"{name} is not in it; it has {_listed(space.spaces)}")
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
        if not isinstance(observed, Collection):
            kind = type(observed).__name__
            raise ValueError(
                f"{obs_name(path)} is of the type {kind}, its space a Tuple"
            )
        if len(observed) != len(parts):
            length = len(observed)
            raise ValueError(
                f"{obs_name(path)} has the length {length}, its space {len(parts)}"
            )
        observed = tuple(observed)
    else:
        yield path, space, observed
        return
    for key, part in parts:
        yield from leaves(part, observed[key], (*path, str(key)))


def as_array(observed: Any, path: tuple[str, ...]) -> Array:
    """The part of an observation at `path`, or of a batch, as an array. Raises
    ValueError."""
    try:
        return np.asarray(observed)
    except (ValueError, TypeError, RuntimeError) as error:
        # Lists of different lengths, or a tensor on a GPU or with a gradient.
        why = ""
        if not isinstance(error, ValueError):
            why = f": {error}"
        raise ValueError(f"{obs_name(path)} is no array{why}") from None


def as_numbers(array: Array, space: AnySpace, path: tuple[str, ...]) -> Array:
    """`array`, which is in `space`, or a batch, in its type. Raises ValueError unless
    it has numbers of it."""
    check_numbers(array, path)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):  # indices of one-hots
        index = array.reshape(-1, *(space.shape or ())) - space.start
        number = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if array.dtype.kind == "f" or not ((index >= 0) & (index < number)).all():
            raise ValueError(
                f"{obs_name(path)} is {array.tolist()!r:.60}, which is not in {space}"
            )
    assert space.dtype is not None
    return typed(array, space.dtype, path)


def _listed(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "none"
