"""The lab's `VectorEnv`: raw environments with converters and episode statistics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from typing_extensions import override

from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import Array, FloatArray, IntArray, Normalization, StateDict, Unnormalized
from slm_lab.env.convert.action import ActionConverter
from slm_lab.env.convert.frames import FrameJoiner
from slm_lab.env.convert.normalize import ObservationNormalizer
from slm_lab.env.convert.observation import ObservationConverter
from slm_lab.env.convert.reward import RewardConverter
from slm_lab.env.vector.raw import RawEnvs
from slm_lab.env.vector_env import FinishedEpisodes, Step, VectorEnv

NONE_ENDED: IntArray = np.zeros(0, np.int64)


class CurrentNormalization(Normalization):
    """The normalisation of environments by their current statistics."""

    def __init__(self, normalizer: ObservationNormalizer | None, reward: RewardConverter) -> None:
        self._normalizer = normalizer
        self._reward = reward

    @override
    def obs(self, raw: Array) -> Array:
        return raw if self._normalizer is None else self._normalizer.normalize(raw)

    @override
    def reward(self, raw: FloatArray) -> FloatArray:
        return self._reward.normalize(raw) if self._reward.normalizes else raw


@dataclass(frozen=True)
class Conversions:
    """What a spec puts between raw environments and an agent."""

    observation: ObservationConverter
    action: ActionConverter
    reward: RewardConverter
    normalizer: ObservationNormalizer | None
    joiner: FrameJoiner | None
    frame_stack: int
    """`VectorEnv.frame_stack`"""
    statistics: FloatArray
    """`VectorEnv.statistics`"""
    moments: tuple[slice, ...]
    """`VectorEnv.moments`"""
    num_info: int
    """`VectorEnv.num_info`"""

    @property
    def observation_space(self) -> Space[Any]:
        """The agent's, of one environment."""
        if self.joiner is not None:
            return self.joiner.space
        space = self.observation.space
        return space if self.normalizer is None else self.normalizer.space(space)


class PipelineEnv(VectorEnv):
    """action → raw environments → episode statistics on the raw reward → reward, observation. With
    `training` False the normalisers' statistics are constant."""

    def __init__(self, raw: RawEnvs, conversions: Conversions, training: bool) -> None:
        self.num_envs = raw.num_envs
        self.exact_state = raw.exact_state
        self.observation_space = conversions.observation_space
        self.frame_stack = conversions.frame_stack
        self.action_space = conversions.action.space
        self.statistics = conversions.statistics
        self.moments = conversions.moments
        self.num_info = conversions.num_info
        self.raw = raw
        """The vector environment under the conversions."""
        self._observation, self._action = conversions.observation, conversions.action
        self._reward, self._normalizer = conversions.reward, conversions.normalizer
        self._joiner = conversions.joiner
        self._training = training
        self.normalization: Normalization | None = None
        if self._normalizer is not None or self._reward.normalizes:
            self.normalization = CurrentNormalization(self._normalizer, self._reward)
        self._obs: Array | None = None
        self._raw_obs: Array | None = None
        self._episode_return = np.zeros(self.num_envs)
        self._now = 0  # vector steps so far
        self._began = np.zeros(self.num_envs, np.int64)  # _now when each episode began

    @property
    @override
    def obs(self) -> Array:
        assert self._obs is not None, "reset() comes first"
        return self._obs

    @property
    @override
    def raw_obs(self) -> Array:
        assert self._raw_obs is not None, "reset() comes first"
        return self._raw_obs

    @override
    def reset(self) -> Array:
        self._episode_return[:] = 0.0
        self._began[:] = self._now
        self._reward.end_episodes(slice(None))
        raw = self._observation.convert(self.raw.reset())
        obs = self._observe(raw)
        if self._joiner is not None:
            obs, raw = self._joiner.begin(obs), self._joiner.begin(raw)
        self._obs, self._raw_obs = obs, raw
        return self._obs

    @override
    def step(self, action: Array) -> Step:
        raw = self.raw.step(self._action.convert(action))
        self._now += 1
        np.add(self._episode_return, raw.reward, self._episode_return)
        reward, scaled = self._reward.convert(raw.reward)
        frames, last, over, finished = self._observation.convert(raw.obs), None, NONE_ENDED, None
        if raw.done_index is not None:
            self._reward.end_episodes(raw.done_index)
            over, final_obs, info = raw.ended()
            if len(over):
                last = self._observation.convert(final_obs)
                finished = self._finish_episodes(over, info)
        before, raw_before = self.obs, self.raw_obs
        obs = self._observe(frames)
        normal_last = None if last is None else self._normalize(last)
        next_obs, obs = self._follow(before, obs, normal_last, over)
        raw_next, raw_obs = next_obs, obs
        if self._normalizer is not None:
            raw_next, raw_obs = self._follow(raw_before, frames, last, over)
        self._obs, self._raw_obs = obs, raw_obs
        unnormalized = None
        if self.normalization is not None:
            raw_reward = scaled if self._reward.normalizes else reward
            unnormalized = Unnormalized(raw_before, raw_reward, raw_next)
        return Step(obs, next_obs, reward, raw.terminated, raw.truncated, finished, unnormalized)

    def _follow(
        self, before: Array, frames: Array, last: Array | None, over: IntArray
    ) -> tuple[Array, Array]:
        """The last observations of a step, and those to act on next, both (N, ...). `before` (N,
        ...) are the joined observations of the previous step, `last` (K, ...) the last frames of
        the ended episodes `over` (K,)."""
        ended = frames
        if last is not None:
            ended = frames.copy()
            ended[over] = last
        if self._joiner is None:
            return ended, frames
        return self._joiner.follow_and_begin(before, ended, frames, over)

    def _observe(self, obs: Array) -> Array:
        """Normalised observations to act on. They update the statistics first."""
        if self._normalizer is None:
            return obs
        if self._training:
            self._normalizer.update(obs)
        return self._normalizer.normalize(obs)

    def _normalize(self, obs: Array) -> Array:
        return obs if self._normalizer is None else self._normalizer.normalize(obs)

    def _finish_episodes(self, index: IntArray, info: FloatArray) -> FinishedEpisodes:
        finished = FinishedEpisodes(
            index, self._episode_return[index], self._now - self._began[index], info
        )
        self._episode_return[index] = 0.0
        self._began[index] = self._now
        return finished

    @override
    def state_dict(self) -> StateDict:
        return {
            "num_envs": self.num_envs,
            "raw": self.raw.state_dict(),
            "statistics": self.statistics.copy(),
            "reward": self._reward.state_dict(),
            "episode_return": self._episode_return.copy(),
            "episode_length": self._now - self._began,
            "obs": None if self._obs is None else self._obs.copy(),
            "raw_obs": None if self._raw_obs is self._obs else self.raw_obs.copy(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._check_fits(state)
        self.statistics[:] = state["statistics"]
        self.raw.load_state_dict(state["raw"])
        if not self.exact_state:
            self.reset()
            return
        self._reward.load_state_dict(state["reward"])
        self._episode_return[:] = state["episode_return"]
        self._now = 0
        self._began[:] = -state["episode_length"]
        self._obs = None if state["obs"] is None else state["obs"].copy()
        self._raw_obs = self._obs if state["raw_obs"] is None else state["raw_obs"].copy()

    def _check_fits(self, state: StateDict) -> None:
        if state["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"the saved state is of {state['num_envs']} environments, not of {self.num_envs}"
            )
        if len(state["statistics"]) != len(self.statistics):
            raise CheckpointError(
                f"the saved state has {len(state['statistics'])} normaliser statistics, this "
                f"environment {len(self.statistics)}: normalize_obs, normalize_reward and the "
                "observation must be those of the saved run"
            )

    @override
    def close(self) -> None:
        self.raw.close()
