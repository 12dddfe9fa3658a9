"""Converts an environment's rewards to the learner's."""

from typing import ClassVar

import numpy as np

from slm_lab.core.schedule import Schedule
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, FloatArray
from slm_lab.env.convert.normalize import RunningStatistics

NORMALIZED_CLIP = 10.0
"""Default bound ± of normalised rewards, as in OpenAI Baselines: early divisors may be
near 0."""


class RewardConverter(SavedFields):
    """Scales, normalises and clips the rewards of N environments as configured, in
    float64.

    `scale` is a factor or "sign" (−1, 0, 1); `clip` a bound c for [−c, c] or "sign".
    With `sign_first` rewards are first converted to −1, 0 or 1, as for Atari games.

    With `statistics` rewards become r / sqrt(Var[G] + ε). G is the discounted return
    so far, G_t = γ G_{t−1} + r_t. The statistics count G before the end of an episode
    resets it, so the last reward belongs to its episode. Rewards are not centred,
    because their sign matters.

    It saves the discounted returns. The owner of the statistics' vector saves them."""

    saved: ClassVar = {"discounted_return": "_discounted_return"}

    def __init__(
        self,
        scale: float | str | None,
        clip: float | str | None,
        training: bool,
        num_envs: int = 1,
        gamma: Schedule | float = 1.0,
        statistics: RunningStatistics | None = None,
        sign_first: bool = False,
    ) -> None:
        self._scale = scale
        self._sign_first = sign_first
        self._clip = (
            NORMALIZED_CLIP if clip is None and statistics is not None else clip
        )
        self._training = training
        if not isinstance(gamma, Schedule):
            gamma = Schedule(gamma)
        self._schedule = gamma
        self._gamma = gamma.at(0)
        self._statistics = statistics
        self._discounted_return = np.zeros(num_envs)

    def set_frame(self, frame: int) -> None:
        """Takes γ at the trial's clock `frame`."""
        if self._statistics is not None:
            self._gamma = self._schedule.at(frame)

    @property
    def normalizes(self) -> bool:
        """Whether rewards depend on running statistics."""
        return self._statistics is not None

    def convert(
        self, raw_reward: FloatArray, absent: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Rewards (N,) of one step → (N,) float32, and the same before `normalize`. In
        training it adds the discounted returns to the statistics, except in `absent`
        rows (N,)."""
        reward = raw_reward
        if self._sign_first:
            reward = np.sign(raw_reward)
        if self._scale is not None:
            reward = (
                np.sign(reward)
                if isinstance(self._scale, str)
                else reward * self._scale
            )
        if self._statistics is not None and self._training:
            self._discounted_return *= self._gamma
            self._discounted_return += reward
            counted = self._discounted_return
            if absent is not None:
                counted = counted[~absent]
            self._statistics.update(counted[:, None])
        return self.normalize(reward), reward

    def normalize(self, reward: FloatArray) -> FloatArray:
        """Scaled rewards of any shape → normalised and clipped float32."""
        if self._statistics is not None:
            reward = np.asarray(reward / self._statistics.deviation())
        if isinstance(self._clip, str):
            reward = np.sign(reward)
        elif self._clip is not None:
            reward = np.minimum(np.maximum(reward, -self._clip), self._clip)
        return reward.astype(np.float32)

    def end_episodes(self, index: Array | slice) -> None:
        """Resets the returns of environments whose episode ended; call it after
        `convert`."""
        self._discounted_return[index] = 0.0
