"""N environments in their own units: the layer below observations, actions and rewards.

Behind this interface there are no autoreset modes: a step that ends an episode returns the true
final observation and, in the same step, the first observation of the next episode.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict


class RawStep(NamedTuple):
    """One step; K of the N episodes ended in it. `reward` may be reused by the next step."""

    obs: Array
    """(N, ...) fresh; rows of ended episodes hold the first observation of the next one"""
    reward: FloatArray
    """(N,) float64"""
    terminated: BoolArray
    truncated: BoolArray
    done_index: IntArray | None
    """(K,) which episodes ended, ascending; None when none did"""
    final_obs: Array | None
    """(K, ...) what those episodes ended in"""


class RawEnvs(ABC):
    """N environments of one kind with the spaces and units of their authors."""

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    exact_state: bool

    @abstractmethod
    def reset(self) -> Array:
        """New episodes everywhere. The first call seeds, later ones go on with the generators."""

    @abstractmethod
    def step(self, action: Array) -> RawStep:
        """One action per environment, in the environment's own units."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Generators, and where `exact_state` the running episodes."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` gave; where not `exact_state`, `reset` has to follow."""

    @abstractmethod
    def close(self) -> None:
        """Frees what the environments hold."""


def env_seeds(seed: int, num_envs: int) -> list[int]:
    """One independent seed per environment, the i-th not depending on `num_envs`.

    31 bits each, because some simulators keep their seed in a C int.
    """
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32)
    return [int(word) >> 1 for word in words]
