"""Environments of every kind of spaces, registered when this module is imported."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Toy(gymnasium.Env):
    """Episodes of `length` steps with a reward per step; observations are samples of
    the space."""

    def __init__(self, observation_space, action_space, reward=1.0, length=10):
        self.observation_space, self.action_space = observation_space, action_space
        self._reward, self._length, self._step = reward, length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._step = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self._step += 1
        ended = self._step == self._length
        return self.observation_space.sample(), self._reward, ended, False, {}


VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
LARGE = spaces.Box(0, 255, (100, 160, 3), np.uint8)
FLOATS = spaces.Box(0, 1, (64, 64, 3), np.float32)
STEER = spaces.Box(-1, 1, (2,), np.float32)

SPACES = {
    "images": (IMAGE, spaces.Discrete(3)),
    "images, continuous": (IMAGE, STEER),
    "large images": (LARGE, spaces.Discrete(3)),
    "float images": (FLOATS, spaces.Discrete(3)),
    "small images": (spaces.Box(0, 255, (20, 20, 3), np.uint8), spaces.Discrete(3)),
    "small float images": (
        spaces.Box(0, 1, (20, 20, 3), np.float32),
        spaces.Discrete(3),
    ),
    "grids": (spaces.Box(0, 10, (7, 7, 3), np.uint8), spaces.Discrete(3)),
    "float grids": (spaces.Box(0, 1, (7, 7, 3), np.float32), spaces.Discrete(3)),
    "image in a dict": (spaces.Dict(screen=IMAGE, speed=VECTOR), spaces.Discrete(3)),
    "multi-discrete": (VECTOR, spaces.MultiDiscrete([2, 3])),
    "unbounded": (VECTOR, spaces.Box(-np.inf, np.inf, (2,), np.float32)),
    "vectors": (VECTOR, spaces.Discrete(2)),
}
ENVS = {}
"""Ids by kind."""

for number, (kind, (observation, action)) in enumerate(SPACES.items()):
    ENVS[kind] = f"SLMToy{number}-v0"
    gymnasium.register(
        ENVS[kind],
        Toy,
        kwargs={"observation_space": observation, "action_space": action},
        disable_env_checker=True,
    )
