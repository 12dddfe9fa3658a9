"""Observations with parts: a Dict or a Tuple becomes one float32 vector."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from typing_extensions import override

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.types import Array
from slm_lab.env.convert.observation import SUPPORTED, float32_box, is_empty, unsupported
from slm_lab.env.interface import Env

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


def flatten(parts: Space[Any], observation: Any) -> Array:
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


def _parts(
    space: Space[Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Space[Any]]]:
    """The innermost spaces of `space`, each with the keys of its path."""
    if isinstance(space, spaces.Dict) and space.spaces:
        for key, part in space.spaces.items():
            yield from _parts(part, (*path, str(key)))
    elif isinstance(space, spaces.Tuple) and space.spaces:
        for index, part in enumerate(space.spaces):
            yield from _parts(part, (*path, str(index)))
    else:
        yield path, space


def fault_of(space: Space[Any], observation: Any, path: tuple[str, ...] = ()) -> str | None:
    """Why an observation cannot be flattened like its space; None if it can. Does not check the
    bounds of a Box or number types: environments with wrong ones work."""
    if isinstance(space, spaces.Dict):
        return _fault_of_dict(space, observation, path)
    if isinstance(space, spaces.Tuple):
        return _fault_of_tuple(space, observation, path)
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


def _fault_of_dict(space: spaces.Dict, observation: Any, path: tuple[str, ...]) -> str | None:
    if not isinstance(observation, Mapping):
        return f"{_named(path)} is of the type {type(observation).__name__}, its space a Dict"
    parts = space.spaces
    if observation.keys() != parts.keys():
        for key in parts:
            if key not in observation:
                return f"{_named((*path, str(key)))} is missing; there are {_listed(observation)}"
        for key in observation:
            if key not in parts:
                return f"{_named((*path, str(key)))} is not in it; it has {_listed(parts)}"
    for key, part in parts.items():
        if (fault := fault_of(part, observation[key], (*path, str(key)))) is not None:
            return fault
    return None


def _fault_of_tuple(
    space: spaces.Tuple[Any], observation: Any, path: tuple[str, ...]
) -> str | None:
    parts = space.spaces
    if not isinstance(observation, Collection):
        return f"{_named(path)} is of the type {type(observation).__name__}, its space a Tuple"
    if len(observation) != len(parts):
        return f"{_named(path)} has the length {len(observation)}, its space {len(parts)}"
    for index, (part, observed) in enumerate(zip(parts, observation, strict=True)):
        if (fault := fault_of(part, observed, (*path, str(index)))) is not None:
            return fault
    return None


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
