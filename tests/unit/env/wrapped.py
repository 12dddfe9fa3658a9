"""Small environments and wrappers that the tests of `env.wrappers` and `env.info_keys`
name."""

import gymnasium
import numpy as np


class Ends(gymnasium.Env):
    """Episodes of 2 to 6 steps with a reward of 1 each; its infos have numbers and
    other values."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(2, 7))
        self.t = 0
        return np.array([self.length, 0], np.float32), {"is_success": 9.0}

    def step(self, action):
        self.t += 1
        over = self.t == self.length
        info = {"word": "yes", "episode": {"extras": {"length": np.int64(self.length)}}}
        if over:
            info["is_success"] = self.length % 2 == 0
            info["odd"] = [1.5, "no", None, np.nan, [1, 2], np.array([2.5])][
                self.length % 6
            ]
            if self.length == 3:
                info["at_three"] = np.float32(0.5)
        return np.array([self.length, self.t], np.float32), 1.0, over, False, info


class Scaled(gymnasium.ObservationWrapper):
    def __init__(self, env, factor: float, shift: int = 0):
        super().__init__(env)
        self.factor = factor
        self.shift = shift

    def observation(self, observation):
        return (observation * self.factor + self.shift).astype(np.float32)


class Rewarded(gymnasium.RewardWrapper):
    """Every reward is `each`."""

    def __init__(self, env, **kwargs):
        super().__init__(env)
        self.each = kwargs.get("each", 2.0)

    def reward(self, reward):
        return self.each


def as_parts(env):
    """A function instead of a class."""
    space = gymnasium.spaces.Dict(
        {"a": env.observation_space, "b": env.observation_space}
    )
    return gymnasium.wrappers.TransformObservation(
        env, lambda obs: {"a": obs, "b": obs}, space
    )


def worded(env):
    return gymnasium.wrappers.TransformObservation(env, str, gymnasium.spaces.Text(9))


def broken(env):
    raise RuntimeError("not today")


def nothing(env): ...


class NoWrapper:
    def __init__(self, env): ...


NUMBER = 3
