"""Types that several packages share."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.integer[Any]]

Shape: TypeAlias = tuple[int, ...]

StateDict: TypeAlias = dict[str, Any]
"""Nested dicts and lists of arrays, tensors, numbers, strings, booleans and None."""


@final
@dataclass(frozen=True)
class Column:
    """A column of a Session's rows: `name` in the CSV, `unit`, one sentence of
    `meaning`."""

    name: str
    unit: str
    meaning: str


class Unnormalized(NamedTuple):
    """The normalised quantities of one step of N environments, before normalisation."""

    obs: Array
    """(N, *obs_shape)"""
    reward: FloatArray
    """(N,)"""
    next_obs: Array
    """(N, *obs_shape)"""


class Normalization(Protocol):
    """Normalises by the present running statistics, which training may change."""

    def obs(self, raw: Array) -> Array:
        """Raw observations (B, *obs_shape) as float32."""

    def reward(self, raw: FloatArray) -> FloatArray:
        """Raw rewards, of any shape, as float32."""
