"""The one `VectorEnv` of the lab: raw environments between converters, with episode statistics."""

import numpy as np

from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import Array, FloatArray, IntArray, StateDict
from slm_lab.env.action import ActionConverter
from slm_lab.env.frames import FrameJoiner
from slm_lab.env.normalize import ObservationNormalizer
from slm_lab.env.observation import ObservationConverter
from slm_lab.env.raw import RawEnvs
from slm_lab.env.reward import RewardConverter
from slm_lab.env.step import FinishedEpisodes, Step
from slm_lab.env.vector_env import VectorEnv

NOBODY: IntArray = np.zeros(0, np.int64)


class PipelineEnv(VectorEnv):
    """action → raw environments → episode statistics on the raw reward → reward, observation.

    With `training` False the statistics stay as they are; everything else is the same.
    """

    def __init__(
        self,
        raw: RawEnvs,
        *,
        observation: ObservationConverter,
        action: ActionConverter,
        reward: RewardConverter,
        normalizer: ObservationNormalizer | None,
        joiner: FrameJoiner | None,
        frame_stack: int,
        statistics: FloatArray,
        moments: tuple[slice, ...],
        training: bool,
    ) -> None:
        self.num_envs = raw.num_envs
        self.exact_state = raw.exact_state
        space = observation.space if normalizer is None else normalizer.space(observation.space)
        self.observation_space = space if joiner is None else joiner.space
        self.frame_stack = frame_stack
        self.action_space = action.space
        self.statistics = statistics
        self.moments = moments
        self._raw = raw
        self._observation, self._action, self._reward = observation, action, reward
        self._normalizer = normalizer
        self._joiner = joiner
        self._training = training
        self._obs: Array | None = None
        self._episode_return = np.zeros(self.num_envs)
        self._now = 0  # vector steps so far
        self._began = np.zeros(self.num_envs, np.int64)  # _now when each episode began

    @property
    def obs(self) -> Array:
        """See `VectorEnv.obs`."""
        assert self._obs is not None, "reset() comes first"
        return self._obs

    def reset(self) -> Array:
        """See `VectorEnv.reset`. Unfinished episodes are dropped from the statistics."""
        self._episode_return[:] = 0.0
        self._began[:] = self._now
        self._reward.end_episodes(slice(None))
        frames = self._observe(self._raw.reset())
        self._obs = frames if self._joiner is None else self._joiner.begin(frames)
        return self._obs

    def step(self, action: Array) -> Step:
        """See `VectorEnv.step`."""
        raw = self._raw.step(self._action.convert(action))
        self._now += 1
        np.add(self._episode_return, raw.reward, self._episode_return)
        reward = self._reward.convert(raw.reward)
        obs = next_obs = self._observe(raw.obs)
        over, finished = NOBODY, None
        if raw.done_index is not None:
            self._reward.end_episodes(raw.done_index)
            over, final_obs = raw.ended()
            if len(over):
                next_obs = obs.copy()
                next_obs[over] = self._normalize(self._observation.convert(final_obs))
                finished = self._finish_episodes(over)
        if self._joiner is not None:
            next_obs, obs = self._joiner.follow_and_begin(self.obs, next_obs, obs, over)
        self._obs = obs
        return Step(obs, next_obs, reward, raw.terminated, raw.truncated, finished)

    def _observe(self, raw_obs: Array) -> Array:
        """Observations to act on: counted once, here, and normalised with what was counted."""
        obs = self._observation.convert(raw_obs)
        if self._normalizer is None:
            return obs
        if self._training:
            self._normalizer.update(obs)
        return self._normalizer.normalize(obs)

    def _normalize(self, obs: Array) -> Array:
        return obs if self._normalizer is None else self._normalizer.normalize(obs)

    def _finish_episodes(self, index: IntArray) -> FinishedEpisodes:
        finished = FinishedEpisodes(
            index, self._episode_return[index], self._now - self._began[index]
        )
        self._episode_return[index] = 0.0
        self._began[index] = self._now
        return finished

    def state_dict(self) -> StateDict:
        """See `VectorEnv.state_dict`."""
        return {
            "num_envs": self.num_envs,
            "raw": self._raw.state_dict(),
            "statistics": self.statistics.copy(),
            "reward": self._reward.state_dict(),
            "episode_return": self._episode_return.copy(),
            "episode_length": self._now - self._began,
            "obs": None if self._obs is None else self._obs.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `VectorEnv.load_state_dict`."""
        self._check_fits(state)
        self.statistics[:] = state["statistics"]
        self._raw.load_state_dict(state["raw"])
        if not self.exact_state:
            self.reset()
            return
        self._reward.load_state_dict(state["reward"])
        self._episode_return[:] = state["episode_return"]
        self._now = 0
        self._began[:] = -state["episode_length"]
        self._obs = None if state["obs"] is None else state["obs"].copy()

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

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._raw.close()
