"""Unnormalised steps of an environment, and their normalisation."""

from typing import NamedTuple, Protocol

from slm_lab.core.types import Array, FloatArray


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
