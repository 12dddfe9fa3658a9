"""Environments that make a training fail to learn."""

import gymnasium
import numpy as np


class FewActions(gymnasium.ActionWrapper):
    """A pendulum whose space of actions is a hundredth of what it needs."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gymnasium.spaces.Box(-0.02, 0.02, (1,), np.float32)

    def action(self, action):
        return action


def _pendulum():
    return gymnasium.make("Pendulum-v1").unwrapped


gymnasium.register(
    "Weak-v0", entry_point=lambda: FewActions(_pendulum()), max_episode_steps=200
)
gymnasium.register("Endless-v0", entry_point=_pendulum)


class WideActions(gymnasium.ActionWrapper):
    """A pendulum whose space of actions is a thousand times what it honours."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gymnasium.spaces.Box(-2000.0, 2000.0, (1,), np.float32)

    def action(self, action):
        return action


class NoVelocities(gymnasium.ObservationWrapper):
    """A pole without the velocities of cart and pole."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-5.0, 5.0, (2,), np.float32)

    def observation(self, observation):
        return observation[[0, 2]]


gymnasium.register(
    "Wide-v0", entry_point=lambda: WideActions(_pendulum()), max_episode_steps=200
)
gymnasium.register(
    "Blind-v0",
    entry_point=lambda: NoVelocities(gymnasium.make("CartPole-v1").unwrapped),
    max_episode_steps=500,
)
