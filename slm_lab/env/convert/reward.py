"""Converts an environment's rewards to the learner's."""

import numpy as np

from slm_lab.core.types import Array, FloatArray, StateDict
from slm_lab.env.convert.normalize import RewardNormalizer

NORMALIZED_CLIP = 10.0
"""Default bound ± of normalised rewards, as in OpenAI Baselines: early divisors may be near 0."""


class RewardConverter:
    """Scales, normalises and clips rewards as configured, in float64.

    `scale` is a factor or "sign" (−1, 0, 1); `clip` a bound c for [−c, c] or "sign". With
    `sign_first` rewards are first converted to −1, 0 or 1, as for Atari games.
    """

    def __init__(
        self,
        scale: float | str | None,
        normalizer: RewardNormalizer | None,
        clip: float | str | None,
        training: bool,
        sign_first: bool = False,
    ) -> None:
        self._sign_first = sign_first
        self._scale = scale
        self._normalizer = normalizer
        self._clip = NORMALIZED_CLIP if clip is None and normalizer is not None else clip
        self._training = training

    @property
    def normalizes(self) -> bool:
        """Whether rewards depend on running statistics."""
        return self._normalizer is not None

    def convert(self, raw_reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rewards (N,) of one step → (N,) float32, and the same before `normalize`. In training it
        adds them to the statistics."""
        reward = np.sign(raw_reward) if self._sign_first else raw_reward
        if self._scale is not None:
            reward = np.sign(reward) if isinstance(self._scale, str) else reward * self._scale
        if self._normalizer is not None and self._training:
            self._normalizer.update(reward)
        return self.normalize(reward), reward

    def normalize(self, reward: FloatArray) -> FloatArray:
        """Scaled rewards of any shape → normalised and clipped float32."""
        if self._normalizer is not None:
            reward = self._normalizer.normalize(reward)
        if isinstance(self._clip, str):
            reward = np.sign(reward)
        elif self._clip is not None:
            reward = np.minimum(np.maximum(reward, -self._clip), self._clip)
        return reward.astype(np.float32)

    def end_episodes(self, index: Array | slice) -> None:
        """Resets the returns of environments whose episode ended; call it after `convert`."""
        if self._normalizer is not None:
            self._normalizer.end_episodes(index)

    def state_dict(self) -> StateDict | None:
        """The accumulated returns of the running episodes."""
        return None if self._normalizer is None else self._normalizer.state_dict()

    def load_state_dict(self, state: StateDict | None) -> None:
        """Restores `state_dict`."""
        if self._normalizer is not None and state is not None:
            self._normalizer.load_state_dict(state)
