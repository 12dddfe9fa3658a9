"""The interface of environments for the rest of the lab."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from slm_lab.core.types import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Normalization,
    StateDict,
    Unnormalized,
)


class FinishedEpisodes(NamedTuple):
    """The K ≥ 1 whole episodes that ended in a step, as the environment counts them. A lost life
    that terminates for the learner does not end an episode."""

    env_index: IntArray
    """(K,) the environment of each episode, ascending"""
    episode_return: FloatArray
    """(K,) float64: the raw reward, summed before any clipping, scaling or normalising"""
    episode_length: IntArray
    """(K,) int64: steps"""
    info: FloatArray
    """(K, I) float64: the numbers under `env.info_keys` in the last info; NaN without a number"""


NO_EPISODES = FinishedEpisodes(
    np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0))
)
"""No episode ended."""


class Step(NamedTuple):
    """One step of N environments. All arrays are new: later steps do not write into them."""

    obs: Array
    """(N, ...) the observations to act on next; after an end, the first of the next episode"""
    next_obs: Array
    """(N, ...) the last observations of the step; the same object as `obs` if no episode ended"""
    reward: FloatArray
    """(N,) float32, as the learner sees it"""
    terminated: BoolArray
    """(N,) the episode ended by itself, or a life was lost that counts as the end: no bootstrap"""
    truncated: BoolArray
    """(N,) the episode was cut off, for example by a time limit: bootstrap from `next_obs`"""
    finished: FinishedEpisodes | None
    """the whole episodes that ended in this step, or None"""
    raw: Unnormalized | None = None
    """the observation acted on, reward and `next_obs` before normalisation; None without any"""


class VectorEnv(ABC):
    """N environments of one kind, stepped together; an ended episode is reset in the same step.

    `observation_space` and `action_space` are the agent's spaces of ONE environment: observations
    are float32 (images uint8), bounded continuous actions are in [-1, 1]^A.
    """

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    exact_state: bool
    """Whether `load_state_dict` continues the saved episodes, bit for bit. If False, it starts new
    episodes, but still restores generators and statistics."""
    statistics: FloatArray
    """The normalisers' running statistics, one flat float64 vector (empty without normalisers).

    It is live: `evaluation.statistics[:] = training.statistics` changes the normalisation of the
    next observation.
    """
    moments: tuple[slice, ...]
    """The slices of `statistics` with running moments, [count, mean (D), M2 (D)] each."""

    num_info: int
    """I, the number of `env.info_keys`, see `FinishedEpisodes.info`."""

    normalization: Normalization | None
    """Normalises by the current statistics; None without normalisers."""

    frame_stack: int
    """The number of frames in an observation: equal parts of its first axis, the newest last.
    Within an episode each observation is the previous one, shifted by one frame."""

    @property
    @abstractmethod
    def obs(self) -> Array:
        """(N, ...) the observations to act on next, of the last reset, step or load."""

    @property
    @abstractmethod
    def raw_obs(self) -> Array:
        """(N, ...) `obs` before normalisation; the same object without it."""

    @abstractmethod
    def reset(self) -> Array:
        """Starts a new episode in every environment; returns the first observations (N, ...). Only
        the first call seeds the environments. Unfinished episodes are not counted."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Takes one action per environment: (N,) for Discrete, (N, A) otherwise. An exception of an
        environment is raised with a note of the environment and its action."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """The state for a resume: nested dicts and lists of arrays, numbers, strings, None."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Continues from `state`, see `exact_state`. Raises CheckpointError if it does not fit."""

    @abstractmethod
    def close(self) -> None:
        """Frees windows, simulators and worker processes. May be called twice."""
