"""Observations in parts: a Dict or a Tuple becomes one float32 vector."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.errors import SpecError
from slm_lab.core.types import Array
from slm_lab.env.observation import SUPPORTED, float32_box, is_empty, unsupported

Env: TypeAlias = gymnasium.Env[Any, Any]

COMPOSITE = (spaces.Dict, spaces.Tuple)
"""the spaces whose observations come in parts, to any depth"""


class FlatObservation(gymnasium.ObservationWrapper[Array, Any, Any]):
    """`gymnasium.spaces.flatten` of every observation, as a float32 vector (D,).

    Unlike gymnasium's FlattenObservation it is float32 whatever the parts are, because what
    came out of several parts is a vector for the net, even where all of them are bytes.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._parts = env.observation_space
        flat = spaces.flatten_space(self._parts)
        assert isinstance(flat, spaces.Box)
        self.observation_space = float32_box(flat)

    def observation(self, observation: Any) -> Array:
        """One observation in parts → (D,)."""
        return np.asarray(spaces.flatten(self._parts, observation), np.float32)


def flatten_parts(env: Env, env_name: str) -> Env:
    """`env`, wrapped if its observations come in parts. Raises SpecError that names every
    observation, or part of one, that is no vector of numbers."""
    problems = [
        unsupported(part, env_name, path)
        for path, part in _parts(env.observation_space)
        if not isinstance(part, SUPPORTED) or is_empty(part)
    ]
    if problems:
        raise SpecError("env", problems)
    return FlatObservation(env) if isinstance(env.observation_space, COMPOSITE) else env


def _parts(
    space: Space[Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Space[Any]]]:
    """The spaces inside of `space` that have no parts, each with the keys that lead to it."""
    if isinstance(space, spaces.Dict) and space.spaces:
        for key, part in space.spaces.items():
            yield from _parts(part, (*path, str(key)))
    elif isinstance(space, spaces.Tuple) and space.spaces:
        for index, part in enumerate(space.spaces):
            yield from _parts(part, (*path, str(index)))
    else:
        yield path, space
