"""The result of one step of N environments."""

from typing import NamedTuple

import numpy as np

from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, Unnormalized


class FinishedEpisodes(NamedTuple):
    """The K ≥ 1 whole episodes that ended in a step, as the environment counts them.

    A lost life that terminates for the learner does not end an episode.
    """

    env_index: IntArray
    """(K,) the environment of each episode, ascending"""
    episode_return: FloatArray
    """(K,) float64: the raw reward, summed before any clipping, scaling or normalising"""
    episode_length: IntArray
    """(K,) int64: steps"""


NO_EPISODES = FinishedEpisodes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
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
