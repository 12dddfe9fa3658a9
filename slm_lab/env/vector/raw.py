"""N environments in their own units: the layer below observations, actions and rewards.

Behind this interface there are no autoreset modes: a step that ends an episode returns the true
final observation and, in the same step, the first observation of the next episode.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict

CONTINUES = "episode_goes_on"
"""A key of the info that `reset` of a single environment returns after a `terminated` that ended
the episode for the learner only, as a lost life does: True, and the observation is the last one."""


class RawStep(NamedTuple):
    """One step, after which K of the N rows are done. `reward` may be reused by the next step."""

    obs: Array
    """(N, ...) fresh; rows whose episode is over hold the first observation of the next one"""
    reward: FloatArray
    """(N,) float64"""
    terminated: BoolArray
    truncated: BoolArray
    done_index: IntArray | None
    """(K,) which rows are terminated or truncated, ascending; None when none is"""
    final_obs: Array | None
    """(K, ...) what their steps ended in"""
    over: BoolArray | None = None
    """(K,) whose episode is over as the environment counts it, so that a new one has begun;
    elsewhere it goes on from `final_obs`, as a game does after a lost life. None: all are over"""

    def ended(self) -> tuple[IntArray, Array]:
        """(R,) whose episode is over, and (R, ...) what it ended in. Only after a done."""
        assert self.done_index is not None
        assert self.final_obs is not None
        if self.over is None:
            return self.done_index, self.final_obs
        return self.done_index[self.over], self.final_obs[self.over]


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


def env_seeds(seed: int | Sequence[int], num_envs: int) -> list[int]:
    """One independent seed per environment, the i-th not depending on `num_envs`.

    31 bits each, because some simulators keep their seed in a C int.
    """
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32)
    return [int(word) >> 1 for word in words]
