"""Observations with parts: a Dict or a Tuple becomes one float32 vector."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from typing_extensions import override

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.types import Array
from slm_lab.env.convert.observation import SUPPORTED, float32_box, is_empty, unsupported
from slm_lab.env.interface import AnySpace, Env

Composite: TypeAlias = spaces.Dict | spaces.Tuple[Any]
COMPOSITE = (spaces.Dict, spaces.Tuple)
"""The spaces whose observations have parts, at any depth."""


class FlatObservation(gymnasium.ObservationWrapper[Array, Any, Any]):
    """`flatten` of every observation, as a float32 vector (D,)."""

    def __init__(self, env: Env, env_name: str) -> None:
        super().__init__(env)
        self._env_name = env_name
        self.parts = env.observation_space
        """The space of the observations with parts."""
        flat = spaces.flatten_space(self.parts)
        assert isinstance(flat, spaces.Box)
        self.observation_space = float32_box(flat)

    @override
    def observation(self, observation: Any) -> Array:
        """One observation with parts → (D,). Raises LabError if they do not match the space."""
        fault = fault_of(self.parts, observation)
        if fault is not None:
            raise LabError(
                f"{self._env_name} breaks its own observation space: {fault}; fix the "
                "environment, or wrap it so that the two agree"
            )
        return flatten(self.parts, observation)


def flatten(parts: AnySpace, observation: Any) -> Array:
    """`gymnasium.spaces.flatten` of one observation, as a float32 vector (D,). Gymnasium's keeps
    bytes if all parts are bytes. Nets treat bytes as images."""
    return np.asarray(spaces.flatten(parts, observation), np.float32)


def flatten_parts(env: Env, env_name: str) -> Env:
    """`env`, wrapped if its observations have parts. Raises SpecError with every observation, or
    part of one, that is no vector of numbers."""
    problems = [
        unsupported(part, env_name, path)
        for path, part in _parts(env.observation_space)
        if not isinstance(part, SUPPORTED) or is_empty(part)
    ]
    if problems:
        raise SpecError("env", problems)
    if isinstance(env.observation_space, COMPOSITE):
        return FlatObservation(env, env_name)
    return env


def parts_of(space: Composite) -> dict[Any, AnySpace]:
    """The spaces of the parts, by key or index."""
    return dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def _parts(
    space: AnySpace, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], AnySpace]]:
    """The innermost spaces of `space`, each with the keys of its path."""
    if isinstance(space, COMPOSITE) and space.spaces:
        for key, part in parts_of(space).items():
            yield from _parts(part, (*path, str(key)))
    else:
        yield path, space


def fault_of(space: AnySpace, observation: Any, path: tuple[str, ...] = ()) -> str | None:
    """Why an observation cannot be flattened like its space; None if it can. Does not check the
    bounds of a Box or number types: environments with wrong ones work."""
    if isinstance(space, COMPOSITE):
        return _fault_of_parts(space, observation, path)
    try:
        array = np.asarray(observation)
    except ValueError:  # lists of different lengths
        return f"{_named(path)} is no array"
    fault = None
    if array.dtype.kind not in "biuf":
        fault = f"is {observation!r:.60}, no number"
    elif array.shape != space.shape and array.size != math.prod(space.shape or ()):
        fault = f"has the shape {array.shape}, its space {space.shape}"
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and not _counts(space, array):
        fault = f"is {array.tolist()}, which is not in {space}"
    return None if fault is None else f"{_named(path)} {fault}"


def _fault_of_parts(space: Composite, observation: Any, path: tuple[str, ...]) -> str | None:
    kind = type(space).__name__
    if not isinstance(observation, Mapping if isinstance(space, spaces.Dict) else Collection):
        return f"{_named(path)} is of the type {type(observation).__name__}, its space a {kind}"
    parts = parts_of(space)
    given: Any = observation
    if isinstance(space, spaces.Tuple):
        if len(observation) != len(parts):
            return f"{_named(path)} has the length {len(observation)}, its space {len(parts)}"
        given = dict(enumerate(observation))
    for key in (key for key in parts if key not in given):
        return f"{_named((*path, str(key)))} is missing; there are {_listed(given)}"
    for key in (key for key in given if key not in parts):
        return f"{_named((*path, str(key)))} is not in it; it has {_listed(parts)}"
    faults = (fault_of(part, given[key], (*path, str(key))) for key, part in parts.items())
    return next(filter(None, faults), None)


def _counts(space: spaces.Discrete | spaces.MultiDiscrete, array: Array) -> bool:
    """Whether all are integers of the space, because each is an index of a one-hot."""
    if array.dtype.kind == "f":
        return False
    if isinstance(space, spaces.Discrete):
        return bool(0 <= array.item() - space.start < space.n)
    number = array.reshape(space.shape) - space.start
    return bool((number >= 0).all() and (number < space.nvec).all())


def _named(path: tuple[str, ...]) -> str:
    return f'the observation "{".".join(path)}"' if path else "the observation"


def _listed(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "none"
