"""What an environment gave before it was normalised, and how it is normalised now."""

from typing import NamedTuple, Protocol

from slm_lab.core.types import Array, FloatArray


class Unnormalized(NamedTuple):
    """What is normalised of one step of N environments, as it was before."""

    obs: Array
    """(N, *obs_shape)"""
    reward: FloatArray
    """(N,)"""
    next_obs: Array
    """(N, *obs_shape)"""


class Normalization(Protocol):
    """Observations and rewards by the running statistics of now, which others may change."""

    def obs(self, raw: Array) -> Array:
        """Raw observations (B, *obs_shape) as float32."""

    def reward(self, raw: FloatArray) -> FloatArray:
        """Raw rewards, of any shape, as float32."""
