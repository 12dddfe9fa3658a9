"""An environment that takes time and no CPU, as a simulator on other cores does."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from typing_extensions import override

LENGTH = 100
"""Steps of an episode."""


class Sleeping(gymnasium.Env[Any, Any]):
    """Sleeps for `seconds` at every step, and rewards nothing in particular."""

    def __init__(self, seconds: float = 0.001) -> None:
        self.observation_space = Box(-1.0, 1.0, (8,), np.float32)
        self.action_space = Discrete(4)
        self._seconds = seconds
        self._t = 0

    @override
    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self.observation_space.sample(), {}

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        self._t += 1
        return (
            self.observation_space.sample(),
            float(action == 0),
            self._t == LENGTH,
            False,
            {},
        )


gymnasium.register("Sleeping-v0", entry_point=Sleeping)
