"""Environments for the rest of the lab: raw ones with converters and episode
statistics."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
from typing_extensions import override

from slm_lab.core.errors import CheckpointError
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.state import HasState
from slm_lab.core.types import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Normalization,
    StateDict,
    Unnormalized,
)
from slm_lab.env.convert.action import AnyActionConverter
from slm_lab.env.convert.normalize import ObservationNormalizer
from slm_lab.env.convert.observation import FrameJoiner, ObservationConverter
from slm_lab.env.convert.reward import RewardConverter
from slm_lab.env.failure import raise_if_exit
from slm_lab.env.vector.raw import RawEnvs


class FinishedEpisodes(NamedTuple):
    """The K ≥ 1 whole episodes that ended in a step, as the environment counts them. A
    lost life that terminates for the learner does not end an episode."""

    env_index: IntArray
    """(K,) the environment of each episode, ascending"""
    episode_return: FloatArray
    """(K,) float64: the raw reward, summed before any clipping, scaling or
    normalising"""
    episode_length: IntArray
    """(K,) int64: steps"""
    info: FloatArray
    """(K, I) float64: the numbers under `env.info_keys` in the last info; NaN without a
    number"""


NO_EPISODES = FinishedEpisodes(
    np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0))
)


class Step(NamedTuple):
    """One step of N environments. All arrays are new: later steps do not write into
    them."""

    obs: Array
    """(N, ...) the observations to act on next; after an end, the first of the next
    episode"""
    next_obs: Array
    """(N, ...) the last observations of the step; the same object as `obs` if no
    episode ended"""
    reward: FloatArray
    """(N,) float32, as the learner sees it"""
    terminated: BoolArray
    """(N,) the episode ended by itself, or a life was lost that counts as the end: no
    bootstrap"""
    truncated: BoolArray
    """(N,) the episode was cut off, for example by a time limit: bootstrap from
    `next_obs`"""
    finished: FinishedEpisodes | None
    """the whole episodes that ended in this step, or None"""
    raw: Unnormalized | None = None
    """the observation acted on, reward and `next_obs` before normalisation; None
    without any"""
    absent: BoolArray | None = None
    """(N,) the rows whose agent did not act, which are no step: it has left, or has not
    joined yet. They count as terminated. None: all acted"""
    begun: BoolArray | None = None
    """(N,) the rows of copies whose agents all began new episodes after the step. None
    where each row is a copy."""

    @property
    def num_frames(self) -> int:
        """The steps of agents in it."""
        if self.absent is None:
            return len(self.reward)
        return len(self.reward) - int(np.count_nonzero(self.absent))


@dataclass(frozen=True)
class CurrentNormalization(Normalization):
    """The normalisation of environments by their current statistics."""

    observation: ObservationNormalizer | None
    rewards: RewardConverter

    @override
    def obs(self, raw: Array) -> Array:
        if self.observation is None:
            return raw
        return self.observation.normalize(raw)

    @override
    def reward(self, raw: FloatArray) -> FloatArray:
        if self.rewards.normalizes:
            return self.rewards.normalize(raw)
        return raw


@dataclass(frozen=True)
class Conversions:
    """The converters that a spec puts between raw environments and an agent."""

    observation: ObservationConverter
    action: AnyActionConverter
    reward: RewardConverter
    normalizer: ObservationNormalizer | None
    joiner: FrameJoiner | None
    layout: ObservationLayout
    """The agent's observations."""
    statistics: FloatArray
    """The normalisers' running statistics, one flat float64 vector (empty without
    normalisers). It is live: `evaluation.statistics[:] = training.statistics` changes
    the next normalisation."""
    moments: tuple[slice, ...]
    """The slices of `statistics` with running moments, [count, mean (D), M2 (D)]
    each."""
    num_info: int
    """I, the number of `env.info_keys`, see `FinishedEpisodes.info`."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The agent's space of one environment, after all conversions."""
        if self.joiner is not None:
            return self.joiner.space
        space = self.observation.space
        if self.normalizer is None:
            return space
        return self.normalizer.space(space)


MOST_SHOWN = 16
"""Agents of a copy whose returns are reported by name."""


def shown_agents(agents: tuple[str, ...]) -> tuple[str, ...]:
    """The agents whose returns are reported by name: all, or else some at even
    distances."""
    places = np.linspace(0, len(agents) - 1, min(len(agents), MOST_SHOWN))
    return tuple(agents[round(place)] for place in places)


class VectorEnv(HasState):
    """N environments of one kind, stepped together; an ended episode is reset in the
    same step. `observation_space` and `action_space` are the agent's spaces of ONE
    environment. Observations are float32 (images uint8), bounded continuous actions are
    in [-1, 1]^A. For other attributes see `Conversions`."""

    num_envs: int
    exact_state: bool
    """Whether `load_state_dict` continues the saved episodes, bit for bit. If False, it
    starts new episodes, but still restores generators and statistics."""
    has_failed: bool
    """Whether a reset or a step has raised an exception, so that some copies may have
    stepped and others not."""
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    layout: ObservationLayout
    statistics: FloatArray
    moments: tuple[slice, ...]
    num_info: int
    normalization: Normalization | None
    """Normalises by the current statistics; None without normalisers."""
    num_agents: int = 1
    """Rows of one copy of the environment."""
    shown_agents: tuple[str, ...] = ()
    """The agents of a copy whose returns are the last columns of
    `FinishedEpisodes.info`."""
    may_be_absent: bool = False
    """Whether agents may leave before the others, or join later."""

    def __init__(
        self, num_envs: int, exact_state: bool, conversions: Conversions
    ) -> None:
        self.num_envs = num_envs
        self.exact_state = exact_state
        self.has_failed = False
        self.observation_space = conversions.observation_space
        self.action_space = conversions.action.space
        self.layout = conversions.layout
        self.statistics = conversions.statistics
        self.moments = conversions.moments
        self.num_info = conversions.num_info
        self.normalization = None

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
        """Starts a new episode in every environment; returns the first observations (N,
        ...). Only the first call seeds the environments. Unfinished episodes are not
        counted."""

    @abstractmethod
    def set_frame(self, frame: int) -> None:
        """Takes the trial's clock, by which γ of the reward's normalisation and
        arguments of environments may change."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Takes one action per environment: (N,) for Discrete, (N, A) otherwise. An
        exception of an environment is raised with a note of the environment and its
        action."""

    @abstractmethod
    @override
    def load_state_dict(self, state: StateDict) -> bool:
        """Continues from `state`. Returns whether its episodes go on. They do not
        without `exact_state`, nor if the state was saved after a failure. Neither do
        they if a fork has forgotten them ("raw" is None). Raises CheckpointError if it
        does not fit."""

    @abstractmethod
    def close(self) -> None:
        """Frees windows, simulators and worker processes. May be called twice."""

    def _fail(self, error: BaseException) -> None:
        """Notes that an environment raised `error`. Raises as `raise_if_exit`."""
        self.has_failed = True
        raise_if_exit(error)


def check_num_envs(state: StateDict, num_envs: int) -> None:
    """Raises CheckpointError if the state is of another number of environments."""
    if state["num_envs"] != num_envs:
        raise CheckpointError(
            f"the saved state is of {state['num_envs']} environments, not of {num_envs}"
        )


def with_last(frames: Array, over: IntArray, last: Array | None) -> Array:
    """The `frames` (N, ...) with the `last` ones (K, ...) of episodes in the rows
    `over` (K,); None: no episode ended."""
    if last is None:
        return frames
    ended = frames.copy()
    ended[over] = last
    return ended


@final
class HostEnv(VectorEnv):
    """Environments in arrays: action → raw environments → episode statistics on the raw
    reward → reward, observation. With `training` False the normalisers' statistics are
    constant."""

    def __init__(self, raw: RawEnvs, conversions: Conversions, training: bool) -> None:
        super().__init__(raw.num_envs, raw.exact_state, conversions)
        self.raw = raw
        """The vector environment under the conversions."""
        self.num_agents = max(len(raw.agents), 1)
        self.shown_agents = shown_agents(raw.agents)
        self.may_be_absent = bool(raw.agents)
        self.num_info += len(self.shown_agents)
        self._observation = conversions.observation
        self._action = conversions.action
        self._reward = conversions.reward
        self._normalizer = conversions.normalizer
        self._joiner = conversions.joiner
        self._training = training
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
        try:
            raw = self._observation.convert(self.raw.reset())
        except BaseException as error:
            self._fail(error)
            raise
        self.has_failed = False
        obs = self._observe(raw)
        if self._joiner is not None:
            obs = self._joiner.begin(obs)
            raw = self._joiner.begin(raw)
        self._obs = obs
        self._raw_obs = raw
        return self._obs

    @override
    def set_frame(self, frame: int) -> None:
        self.raw.set_frame(frame)
        self._reward.set_frame(frame)

    @override
    def step(self, action: Array) -> Step:
        converted = self._action.convert(action)
        absent = self.raw.absent
        try:
            raw = self.raw.step(converted)
        except BaseException as error:
            self._fail(error)
            raise
        self._now += 1
        np.add(self._episode_return, raw.reward, self._episode_return)
        reward, scaled = self._reward.convert(raw.reward, absent)
        frames = self._observation.convert(raw.obs)
        over = NO_EPISODES.env_index
        last = None
        finished = None
        if raw.done_index is not None:
            self._reward.end_episodes(raw.done_index)
            over, final_obs, info = raw.ended()
            if len(over):
                last = self._observation.convert(final_obs)
                finished = self._finish_episodes(over, info)
        terminated = raw.terminated
        begun = over
        if absent is not None:
            terminated = terminated | absent
            begun = np.union1d(over, absent.nonzero()[0])
            self._began[absent] = self._now
        before = self.obs
        raw_before = self.raw_obs
        obs = self._observe(frames)
        normal_last = last
        if last is not None and self._normalizer is not None:
            normal_last = self._normalizer.normalize(last)
        ended = with_last(obs, over, normal_last)
        next_obs, obs = self._follow(before, ended, obs, begun)
        raw_next = next_obs
        raw_obs = obs
        if self._normalizer is not None:
            ended = with_last(frames, over, last)
            raw_next, raw_obs = self._follow(raw_before, ended, frames, begun)
        self._obs = obs
        self._raw_obs = raw_obs
        unnormalized = None
        if self.normalization is not None:
            raw_reward = reward
            if self._reward.normalizes:
                raw_reward = scaled
            unnormalized = Unnormalized(raw_before, raw_reward, raw_next)
        return Step(
            obs=obs,
            next_obs=next_obs,
            reward=reward,
            terminated=terminated,
            truncated=raw.truncated,
            finished=finished,
            raw=unnormalized,
            absent=absent,
            begun=self.raw.begun,
        )

    def _follow(
        self, before: Array, ended: Array, frames: Array, begun: IntArray
    ) -> tuple[Array, Array]:
        """The last observations of a step, and the observations to act on next, both
        (N, ...). `before` (N, ...) are the joined observations of the previous step,
        `ended` and `frames` its frames without and with new episodes. Frames begin anew
        in the rows `begun` (K,): rows of ended episodes, and of absent agents."""
        if self._joiner is None:
            return ended, frames
        return self._joiner.follow_and_begin(before, ended, frames, begun)

    def _observe(self, obs: Array) -> Array:
        """Normalised observations to act on. They update the statistics first."""
        if self._normalizer is None:
            return obs
        if self._training:
            seen = obs
            if self.raw.absent is not None:
                seen = obs[~self.raw.absent]
            self._normalizer.update(seen)
        return self._normalizer.normalize(obs)

    def _finish_episodes(self, index: IntArray, info: FloatArray) -> FinishedEpisodes:
        episode_return = self._episode_return[index]
        if self.shown_agents:
            by_agent = self._returns_by_agent(index, episode_return)
            info = np.concatenate([info, by_agent], 1)
        finished = FinishedEpisodes(
            env_index=index,
            episode_return=episode_return,
            episode_length=self._now - self._began[index],
            info=info,
        )
        self._episode_return[index] = 0.0
        self._began[index] = self._now
        return finished

    def _returns_by_agent(self, index: IntArray, episode_return: FloatArray) -> Array:
        """(K, S) the return of each episode in the column of its agent; else NaN."""
        agents = [self.raw.agents[row % self.num_agents] for row in index]
        is_of_agent = np.array(agents)[:, None] == np.array(self.shown_agents)
        return np.where(is_of_agent, episode_return[:, None], np.nan)

    @override
    def state_dict(self) -> StateDict:
        return {
            "num_envs": self.num_envs,
            "failed": self.has_failed,
            "raw": self.raw.state_dict(),
            "statistics": self.statistics.copy(),
            "reward": self._reward.state_dict() if self._reward.normalizes else None,
            "episode_return": self._episode_return.copy(),
            "episode_length": self._now - self._began,
            "obs": None if self._obs is None else self._obs.copy(),
            "raw_obs": None if self._raw_obs is self._obs else self.raw_obs.copy(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> bool:
        self._check_fits(state)
        self.statistics[:] = state["statistics"]
        goes_on = state["raw"] is not None and not state.get("failed", False)
        if state["raw"] is not None:
            self.raw.load_state_dict(state["raw"])
        if not self.exact_state or not goes_on:
            self.reset()
            return False
        if self._reward.normalizes and state["reward"] is not None:
            self._reward.load_state_dict(state["reward"])
        self._episode_return[:] = state["episode_return"]
        self._now = 0
        self._began[:] = -state["episode_length"]
        self._obs = None if state["obs"] is None else state["obs"].copy()
        self._raw_obs = (
            self._obs if state["raw_obs"] is None else state["raw_obs"].copy()
        )
        return True

    def _check_fits(self, state: StateDict) -> None:
        check_num_envs(state, self.num_envs)
        if len(state["statistics"]) != len(self.statistics):
            raise CheckpointError(
                f"the saved state has {len(state['statistics'])} normaliser "
                f"statistics, this environment {len(self.statistics)}: normalize_obs, "
                "normalize_reward and the observation must be those of the saved run"
            )

    @override
    def close(self) -> None:
        self.raw.close()
