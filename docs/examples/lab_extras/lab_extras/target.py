"""The smallest environment with continuous actions in which the best action depends on
what is seen."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Target(gymnasium.Env[Floats, Floats]):
    """Say the number that you are shown; the reward is minus the distance to it.

    `length` is the number of steps in an episode. Nothing ends an episode but its
    length: that is a truncation, so the last state still has a value.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 20) -> None:
        self.length = length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """The first target, (1,)."""
        super().reset(seed=seed)  # makes self.np_random, the only source of randomness
        self.t = 0
        return self._next_target(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """The next target, the reward for the last one, terminated, truncated, info."""
        reward = -abs(float(action[0]) - float(self.target[0]))
        self.t += 1
        return self._next_target(), reward, False, self.t >= self.length, {}

    def _next_target(self) -> Floats:
        self.target = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.target
