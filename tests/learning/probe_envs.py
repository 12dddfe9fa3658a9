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
StepResult = tuple[Any, float, bool, bool, dict[str, Any]]


class Probe(gymnasium.Env[Any, Any]):
    """Episodes of `length` steps. A subclass draws observations, and rewards actions
    by the last one drawn."""

    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    length = 1

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self.draw(), {}

    def step(self, action: Any) -> StepResult:
        self._t += 1
        reward = self.reward(action)
        return self.draw(), reward, self._t == self.length, False, {}

    def draw(self) -> Any:
        """The observation after `t` steps."""
        return np.zeros(1, np.float32)

    def reward(self, action: Any) -> float:
        """The reward of step `t`, counted from 1."""
        return 1.0


class ConstantReward(Probe):
    """One step, the same observation, reward 1: V(s) = 1. Probes the value loss."""


class RewardIsObs(Probe):
    """One step, obs ±1 at random, reward = obs: V(s) = obs. Probes values that depend
    on obs."""

    def draw(self) -> Obs:
        if self._t == 0:
            self._obs = np.array([self.np_random.choice([-1.0, 1.0])], np.float32)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        return float(self._obs[0])


class RewardIsAction(Probe):
    """One step, reward +1 for action 1 and −1 for action 0. Probes the policy
    gradient."""

    def reward(self, action: Any) -> float:
        return 2.0 * int(action) - 1.0


class RewardIsContinuousAction(Probe):
    """One step, reward −(a − 0.5)² with a in [−2, 2]; best is a = 0.5, return 0."""

    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reward(self, action: Any) -> float:
        return -float((action[0] - 0.5) ** 2)


class TwoStepCredit(Probe):
    """The first action decides the reward of the second step: +1 for 1, −1 for 0.

    The second observation does not show the first action; obs[0] is the time. Probes
    credit assignment: best return 1, V(second state) = the mean over first actions.
    """

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    length = 2

    def draw(self) -> Obs:
        return np.array([self._t > 0], np.float32)

    def reward(self, action: Any) -> float:
        if self._t == 1:
            self._first_action = int(action)
            return 0.0
        return 2.0 * self._first_action - 1.0


class CutShort(Probe):
    """Two states. From 0 the episode is truncated in 1, without a reward; others begin
    in 1, and terminate with reward 4. At γ 0.8 V is 3.2 and 4. Probes values of states
    before a truncation.
    """

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def draw(self) -> Obs:
        self._state = int(self.np_random.integers(2))
        return np.array([self._state], np.float32)

    def step(self, action: Any) -> StepResult:
        is_last = self._state == 1
        return np.ones(1, np.float32), 4.0 * is_last, is_last, not is_last, {}


class ContinuousCutShort(CutShort):
    """CutShort with an action in [−1, 1], which changes nothing."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


class MatchObs(Probe):
    """Eight steps, obs ±1, reward +1 where the action (0, 1) matches its sign, else
    −1."""

    length = 8

    def draw(self) -> Obs:
        self._obs = np.array([self.np_random.choice([-1.0, 1.0])], np.float32)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        return 1.0 if (int(action) == 1) == (self._obs[0] > 0) else -1.0


class MatchChoices(Probe):
    """Four steps, reward: the share of the choices in which the action equals the
    observation."""

    observation_space = spaces.MultiDiscrete([3, 2])
    action_space = spaces.MultiDiscrete([3, 2])
    length = 4

    def draw(self) -> Any:
        self._obs = self.np_random.integers(self.action_space.nvec)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        return float((action == self._obs).mean())


class MatchBits(Probe):
    """Four steps, reward: the share of the bits in which the action equals the
    observation."""

    observation_space = spaces.MultiBinary(3)
    action_space = spaces.MultiBinary(3)
    length = 4

    def draw(self) -> NDArray[np.int8]:
        self._obs = self.np_random.integers(0, 2, 3).astype(np.int8)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        return float((action == self._obs).mean())


class MatchParts(Probe):
    """MatchChoices with an observation in parts: the first choice by number, the second
    by sign."""

    observation_space = spaces.Dict(
        {"number": spaces.Discrete(3), "sign": spaces.Box(-1.0, 1.0, (1,), np.float32)}
    )

    action_space = spaces.MultiDiscrete([3, 2])
    length = 4

    def draw(self) -> dict[str, Any]:
        self._wanted = self.np_random.integers(self.action_space.nvec)
        number, sign = self._wanted
        return {"number": int(number), "sign": np.array([2.0 * sign - 1.0], np.float32)}

    def reward(self, action: Any) -> float:
        return float((action == self._wanted).mean())


class MatchScene(Probe):
    """Four steps, an image with a bright half, a sign and a room. Reward +1 for action
    1 where the right half is bright, or the left one with a negative sign, else for
    action 0; −1 for the other one."""

    observation_space: spaces.Space[Any] = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (16, 14, 3), np.uint8),
            "sign": spaces.Box(-1.0, 1.0, (1,), np.float64),
            "room": spaces.Discrete(3, start=1),
        }
    )
    length = 4

    def draw(self) -> dict[str, Any]:
        half, negative = self.np_random.integers(2, size=2)
        self._wanted = int(half) ^ int(negative)
        image = self.np_random.integers(0, 100, (16, 14, 3)).astype(np.uint8)
        image[:, 7 * half : 7 * half + 7] += 100
        return {
            "image": image,
            "sign": np.array([1.0 - 2.0 * negative]),
            "room": int(self.np_random.integers(1, 4)),
        }

    def reward(self, action: Any) -> float:
        return 1.0 if int(action) == self._wanted else -1.0


class AimInScene(MatchScene):
    """MatchScene with a number as an action. The best one is ½ in place of 1, and −½ in
    place of 0. The reward is minus the squared distance to it."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reward(self, action: Any) -> float:
        return -float((float(action[0]) - (self._wanted - 0.5)) ** 2)


class TakeAllowed(Probe):
    """Four steps, a number for each of three actions, which are counted from 5, and a
    mask of them in the info. The reward is the number of the action. An action that is
    not allowed raises an error. The last state of an episode allows none."""

    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3, start=5)
    length = 4

    def reset(self, *, seed=None, options=None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, self.info()

    def step(self, action: Any) -> StepResult:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self.info()

    def info(self) -> dict[str, Any]:
        """The mask of the state."""
        return {"action_mask": self.mask}

    def draw(self) -> Any:
        self._numbers = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        self.mask = self.np_random.integers(0, 2, 3).astype(np.int8)
        self.mask[self.np_random.integers(3)] = 1
        if self._t == self.length:
            self.mask[:] = 0
        return self._numbers.copy()

    def reward(self, action: Any) -> float:
        index = int(action) - 5
        if not self.mask[index]:
            raise ValueError(f"action {action} is not allowed: {self.mask}")
        return float(self._numbers[index])


class TakeAllowedPair(TakeAllowed):
    """TakeAllowed with two choices, of three and of two, and the mask as a part of the
    observation. The reward is the mean of both numbers."""

    observation_space = spaces.Dict(
        {
            "numbers": spaces.Box(-1.0, 1.0, (5,), np.float32),
            "allowed": spaces.MultiBinary(5),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def info(self) -> dict[str, Any]:
        return {}

    def draw(self) -> Any:
        first = super().draw()
        second = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._numbers = np.concatenate([first, second])
        others = np.zeros(2, np.int8)
        if self._t < self.length:
            others = self.np_random.integers(0, 2, 2).astype(np.int8)
            others[self.np_random.integers(2)] = 1
        self.mask = np.concatenate([self.mask, others])
        return {"numbers": self._numbers.copy(), "allowed": self.mask.copy()}

    def reward(self, action: Any) -> float:
        index = np.asarray(action) + np.array([0, 3])
        if not self.mask[index].all():
            raise ValueError(f"action {action} is not allowed: {self.mask}")
        return float(self._numbers[index].mean())


class ChooseAndAim(Probe):
    """Four steps, obs ±1 twice. The choice, 5 or 6, must follow the sign of the first,
    and the number must be half of the second. The reward is ½ for the right choice,
    minus half of the squared distance of the number in half ranges."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Dict(
        {
            "choice": spaces.Discrete(2, start=5),
            "number": spaces.Box(-3.0, 3.0, (), np.float64),
        }
    )
    length = 4

    def draw(self) -> Obs:
        self._obs = self.np_random.choice([-1.0, 1.0], 2).astype(np.float32)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        is_right = (action["choice"] == 6) == (self._obs[0] > 0)
        distance = float(action["number"]) / 3 - 0.5 * float(self._obs[1])
        return 0.5 * is_right - 0.5 * distance**2


class MoveByParameter(Probe):
    """Four steps, and three moves with a number each: a parametrised action. The
    observation names a move. That move earns 1 minus the squared distance of its own
    number to (−½, 0, ½); the other numbers do nothing, and another move earns 0."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.Tuple([spaces.Box(-1.0, 1.0, (1,), np.float32)] * 3),
        ]
    )
    length = 4

    def draw(self) -> int:
        self._named = int(self.np_random.integers(3))
        return self._named

    def reward(self, action: Any) -> float:
        move, numbers = action
        if move != self._named:
            return 0.0
        distance = float(numbers[move][0]) - 0.5 * (self._named - 1)
        return 1.0 - distance**2


class ActionInTuple(gymnasium.ActionWrapper[Any, Any, Any]):
    """The environment with its action as the only part of a Tuple."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = spaces.Tuple([env.action_space])

    def action(self, action: Any) -> Any:
        return action[0]


class ReachPoint(Probe):
    """Four steps, obs ±1 twice.

    The best action is a quarter of the range from the middle, in the direction of obs.
    The reward is minus the squared distance to it, in half ranges.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(
        np.array([-2.0, 1.0]), np.array([2.0, 2.0]), dtype=np.float64
    )
    length = 4

    def draw(self) -> Obs:
        self._obs = self.np_random.choice([-1.0, 1.0], 2).astype(np.float32)
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        low = self.action_space.low
        high = self.action_space.high
        of_half_range = (2 * action - low - high) / (high - low)
        return -float(((of_half_range - 0.5 * self._obs) ** 2).sum())


class NearPoint(ReachPoint):
    """ReachPoint with one more in every step: near the best action the reward is
    positive."""

    def reward(self, action: Any) -> float:
        return super().reward(action) + 1.0


class MatchImage(Probe):
    """Four steps, two frames of noise in which one half is bright: 0 the left, 1 the
    right. Reward +1 for the action of that name, else −1."""

    observation_space = spaces.Box(0, 255, (2, 12, 12), np.uint8)
    length = 4

    def draw(self) -> NDArray[np.uint8]:
        self._half = int(self.np_random.integers(2))
        self._obs = self.np_random.integers(0, 100, (2, 12, 12)).astype(np.uint8)
        self._obs[:, :, 6 * self._half : 6 * self._half + 6] += 100
        return self._obs.copy()

    def reward(self, action: Any) -> float:
        return 1.0 if int(action) == self._half else -1.0


class AimByImage(MatchImage):
    """MatchImage with two numbers as an action. The best ones are (−½, ½) where the
    left half is bright, and (½, −½) where the right one is. The reward is minus the
    squared distance to them."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reward(self, action: Any) -> float:
        sign = 2.0 * self._half - 1.0
        best = np.array([0.5 * sign, -0.5 * sign])
        return -float(((np.asarray(action) - best) ** 2).sum())


class RecallCue(Probe):
    """Six steps; the first observation shows ±1, the last asks for it: reward ±1.
    Probes memory.

    In between there is noise. An agent without memory gets 0 on average.
    """

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    length = 6

    def draw(self) -> Obs:
        cue = 0.0
        if self._t == 0:
            self._cue = int(self.np_random.integers(2))
            cue = 2.0 * self._cue - 1.0
        asks = float(self._t == self.length - 1)
        return np.array([cue, asks, self.np_random.uniform(-1, 1)], np.float32)

    def reward(self, action: Any) -> float:
        if self._t < self.length:
            return 0.0
        return 1.0 if int(action) == self._cue else -1.0


class RecallCueInParts(RecallCue):
    """RecallCue whose question is a part of its own. Probes a memory for one part."""

    observation_space: spaces.Space[Any] = spaces.Dict(
        {
            "cue": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "question": spaces.Box(0.0, 1.0, (1,), np.float32),
        }
    )

    def draw(self) -> dict[str, Any]:
        cue, asks, noise = super().draw()
        return {"cue": np.array([cue, noise]), "question": np.array([asks])}


PROBES: dict[str, type[gymnasium.Env[Any, Any]]] = {
    "ProbeConstantReward-v0": ConstantReward,
    "ProbeRecallCueInParts-v0": RecallCueInParts,
    "ProbeRewardIsObs-v0": RewardIsObs,
    "ProbeRewardIsAction-v0": RewardIsAction,
    "ProbeRewardIsContinuousAction-v0": RewardIsContinuousAction,
    "ProbeContinuousCutShort-v0": ContinuousCutShort,
    "ProbeTwoStepCredit-v0": TwoStepCredit,
    "ProbeCutShort-v0": CutShort,
    "ProbeMatchObs-v0": MatchObs,
    "ProbeMatchChoices-v0": MatchChoices,
    "ProbeMatchBits-v0": MatchBits,
    "ProbeMatchParts-v0": MatchParts,
    "ProbeMatchScene-v0": MatchScene,
    "ProbeAimInScene-v0": AimInScene,
    "ProbeTakeAllowed-v0": TakeAllowed,
    "ProbeTakeAllowedPair-v0": TakeAllowedPair,
    "ProbeChooseAndAim-v0": ChooseAndAim,
    "ProbeMoveByParameter-v0": MoveByParameter,
    "ProbeReachPoint-v0": ReachPoint,
    "ProbeNearPoint-v0": NearPoint,
    "ProbeRecallCue-v0": RecallCue,
    "ProbeMatchImage-v0": MatchImage,
    "ProbeAimByImage-v0": AimByImage,
}


def register_probes() -> None:
    """Makes the probes known to Gymnasium; calling it again does nothing."""
    for name, probe in PROBES.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=probe)
