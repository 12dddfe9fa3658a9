"""Tiny environments that a correct algorithm solves in seconds, each probing one part
of it.

Episodes are as short as they can be, so that an optimal return is known exactly.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Obs = NDArray[np.float32]
StepResult = tuple[Obs, float, bool, bool, dict[str, Any]]


class ConstantReward(gymnasium.Env[Obs, Any]):
    """One step, the same observation, reward 1: V(s) = 1. Probes the value loss."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> StepResult:
        return np.zeros(1, np.float32), 1.0, True, False, {}


class RewardIsObs(gymnasium.Env[Obs, Any]):
    """One step, obs ±1 at random, reward = obs: V(s) = obs. Probes values that depend
    on obs."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._obs = np.array([self.np_random.choice([-1.0, 1.0])], np.float32)
        return self._obs.copy(), {}

    def step(self, action: Any) -> StepResult:
        return self._obs.copy(), float(self._obs[0]), True, False, {}


class RewardIsAction(gymnasium.Env[Obs, Any]):
    """One step, reward +1 for action 1 and −1 for action 0. Probes the policy
    gradient."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> StepResult:
        return np.zeros(1, np.float32), 2.0 * int(action) - 1.0, True, False, {}


class RewardIsContinuousAction(gymnasium.Env[Obs, Any]):
    """One step, reward −(a − 0.5)² with a in [−2, 2]; best is a = 0.5, return 0."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> StepResult:
        return np.zeros(1, np.float32), -float((action[0] - 0.5) ** 2), True, False, {}


class TwoStepCredit(gymnasium.Env[Obs, Any]):
    """The first action decides the reward of the second step: +1 for 1, −1 for 0.

    The second observation does not show the first action; obs[0] is the time. Probes
    credit assignment: best return 1, V(second state) = the mean over first actions.
    """

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._first_action: int | None = None
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> StepResult:
        now = np.ones(1, np.float32)
        if self._first_action is None:
            self._first_action = int(action)
            return now, 0.0, False, False, {}
        return now, 2.0 * self._first_action - 1.0, True, False, {}


class CutShort(gymnasium.Env[Obs, Any]):
    """Two states. From 0 the episode is truncated in 1, without a reward; others begin
    in 1, and terminate with reward 4. At γ 0.8 V is 3.2 and 4. Probes values of states
    before a truncation.
    """

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(self.np_random.integers(2))
        return np.array([self._state], np.float32), {}

    def step(self, action: Any) -> StepResult:
        is_last = self._state == 1
        return np.ones(1, np.float32), 4.0 * is_last, is_last, not is_last, {}


class MatchObs(gymnasium.Env[Obs, Any]):
    """Eight steps, obs ±1, reward +1 where the action (0, 1) matches its sign, else
    −1."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def _draw(self) -> Obs:
        self._obs = np.array([self.np_random.choice([-1.0, 1.0])], np.float32)
        return self._obs.copy()

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> StepResult:
        self._t += 1
        reward = -1.0
        if (int(action) == 1) == (self._obs[0] > 0):
            reward = 1.0
        return self._draw(), reward, self._t == 8, False, {}


class MatchChoices(gymnasium.Env[Any, Any]):
    """Four steps, reward: the share of the choices in which the action equals the
    observation."""

    observation_space = spaces.MultiDiscrete([3, 2])
    action_space = spaces.MultiDiscrete([3, 2])

    def _draw(self) -> NDArray[np.int64]:
        self._obs = self.np_random.integers(self.action_space.nvec)
        return self._obs.copy()

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        reward = float((action == self._obs).mean())
        return self._draw(), reward, self._t == 4, False, {}


class MatchBits(gymnasium.Env[Any, Any]):
    """Four steps, reward: the share of the bits in which the action equals the
    observation."""

    observation_space = spaces.MultiBinary(3)
    action_space = spaces.MultiBinary(3)

    def _draw(self) -> NDArray[np.int8]:
        self._obs = self.np_random.integers(0, 2, 3).astype(np.int8)
        return self._obs.copy()

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        reward = float((action == self._obs).mean())
        return self._draw(), reward, self._t == 4, False, {}


class MatchParts(gymnasium.Env[Any, Any]):
    """MatchChoices with an observation in parts: the first choice by number, the second
    by sign."""

    observation_space = spaces.Dict(
        {"number": spaces.Discrete(3), "sign": spaces.Box(-1.0, 1.0, (1,), np.float32)}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def _draw(self) -> dict[str, Any]:
        self._wanted = self.np_random.integers(self.action_space.nvec)
        number, sign = self._wanted
        return {"number": int(number), "sign": np.array([2.0 * sign - 1.0], np.float32)}

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        reward = float((action == self._wanted).mean())
        return self._draw(), reward, self._t == 4, False, {}


class ReachPoint(gymnasium.Env[Obs, Any]):
    """Four steps, obs ±1 twice.

    The best action is a quarter of the range from the middle, in the direction of obs.
    The reward is minus the squared distance to it, in half ranges.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(
        np.array([-2.0, 1.0]), np.array([2.0, 2.0]), dtype=np.float64
    )

    def _draw(self) -> Obs:
        self._obs = self.np_random.choice([-1.0, 1.0], 2).astype(np.float32)
        return self._obs.copy()

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> StepResult:
        self._t += 1
        low = self.action_space.low
        high = self.action_space.high
        of_half_range = (2 * action - low - high) / (high - low)
        reward = -float(((of_half_range - 0.5 * self._obs) ** 2).sum())
        return self._draw(), reward, self._t == 4, False, {}


class NearPoint(ReachPoint):
    """ReachPoint with one more in every step: near the best action the reward is
    positive."""

    def step(self, action: Any) -> StepResult:
        obs, reward, *ends = super().step(action)
        return obs, reward + 1.0, *ends


class MatchImage(gymnasium.Env[Any, Any]):
    """Four steps, two frames of noise in which one half is bright: 0 the left, 1 the
    right. Reward +1 for the action of that name, else −1."""

    observation_space = spaces.Box(0, 255, (2, 12, 12), np.uint8)
    action_space = spaces.Discrete(2)

    def _draw(self) -> NDArray[np.uint8]:
        self._half = int(self.np_random.integers(2))
        self._obs = self.np_random.integers(0, 100, (2, 12, 12)).astype(np.uint8)
        self._obs[:, :, 6 * self._half : 6 * self._half + 6] += 100
        return self._obs.copy()

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        reward = -1.0
        if int(action) == self._half:
            reward = 1.0
        return self._draw(), reward, self._t == 4, False, {}


class RecallCue(gymnasium.Env[Obs, Any]):
    """Six steps; the first observation shows ±1, the last asks for it: reward ±1.
    Probes memory.

    In between there is noise. An agent without memory gets 0 on average.
    """

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)
    LENGTH = 6

    def reset(self, *, seed=None, options=None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(2))
        self._t = 0
        return self._obs(2.0 * self._cue - 1.0), {}

    def step(self, action: Any) -> StepResult:
        self._t += 1
        if self._t < self.LENGTH:
            return self._obs(0.0), 0.0, False, False, {}
        reward = -1.0
        if int(action) == self._cue:
            reward = 1.0
        return self._obs(0.0), reward, True, False, {}

    def _obs(self, cue: float) -> Obs:
        asked = float(self._t == self.LENGTH - 1)
        return np.array([cue, asked, self.np_random.uniform(-1, 1)], np.float32)


PROBES: dict[str, type[gymnasium.Env[Any, Any]]] = {
    "ProbeConstantReward-v0": ConstantReward,
    "ProbeRewardIsObs-v0": RewardIsObs,
    "ProbeRewardIsAction-v0": RewardIsAction,
    "ProbeRewardIsContinuousAction-v0": RewardIsContinuousAction,
    "ProbeTwoStepCredit-v0": TwoStepCredit,
    "ProbeCutShort-v0": CutShort,
    "ProbeMatchObs-v0": MatchObs,
    "ProbeMatchChoices-v0": MatchChoices,
    "ProbeMatchBits-v0": MatchBits,
    "ProbeMatchParts-v0": MatchParts,
    "ProbeReachPoint-v0": ReachPoint,
    "ProbeNearPoint-v0": NearPoint,
    "ProbeRecallCue-v0": RecallCue,
    "ProbeMatchImage-v0": MatchImage,
}


def register_probes() -> None:
    """Makes the probes known to Gymnasium; calling it again does nothing."""
    for name, probe in PROBES.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=probe)
