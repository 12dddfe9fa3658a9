"""What one step of N environments returns."""

from typing import NamedTuple

import numpy as np

from slm_lab.core.normalization import Unnormalized
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray


class FinishedEpisodes(NamedTuple):
    """The K ≥ 1 episodes that ended in a step, as the environment scored them.

    Whole ones: a lost life that terminates for the learner does not end the episode.
    """

    env_index: IntArray
    """(K,) which environment each episode ran in, ascending"""
    episode_return: FloatArray
    """(K,) float64: the raw reward, summed before any clipping, scaling or normalising"""
    episode_length: IntArray
    """(K,) int64: steps"""


NO_EPISODES = FinishedEpisodes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
"""None at all."""


class Step(NamedTuple):
    """One step of N environments. Every array is fresh: later steps do not write into it."""

    obs: Array
    """(N, ...) what to act on next; where an episode ended, the first of the next one"""
    next_obs: Array
    """(N, ...) what the step really ended in; the same object as `obs` when no episode ended"""
    reward: FloatArray
    """(N,) float32, as the learner sees it"""
    terminated: BoolArray
    """(N,) the episode ended by itself, or a life was lost where that counts: no bootstrap"""
    truncated: BoolArray
    """(N,) the episode was cut off, by a time limit say: bootstrap from `next_obs`"""
    finished: FinishedEpisodes | None
    """the whole episodes that ended in this step, or None"""
    raw: Unnormalized | None = None
    """what was acted on, the reward and `next_obs` before they were normalised; None where nothing
    is"""
