"""Environments of gymnax, which JAX computes, as a vector environment of Gymnasium."""

from typing import Any, ClassVar

import gymnax
import jax
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnax.environments.spaces import gymnax_space_to_gym_space


class Gymnax(VectorEnv[Any, Any, Any]):
    """`task` in N copies, such as "CartPole-v1". Needs gymnax 1.0: there an ended
    episode begins anew in the same step, and its last observation is in the info."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, task: str = "CartPole-v1") -> None:
        env, self.params = gymnax.make(task)
        self.num_envs = num_envs
        observations = env.observation_space(self.params)
        self.single_observation_space = gymnax_space_to_gym_space(observations)
        actions = env.action_space(self.params)
        self.single_action_space = gymnax_space_to_gym_space(actions)
        self.reset_all = jax.jit(jax.vmap(env.reset, (0, None)))
        self.step_all = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
        self.key = jax.random.key(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Arrays of JAX: the lab takes them as they are."""
        if seed is not None:
            self.key = jax.random.key(seed)
        obs, self.state = self.reset_all(self.keys(), self.params)
        return obs, {}

    def step(self, actions: Any) -> Any:
        """Observations, rewards, terminated, truncated, info."""
        obs, self.state, *ends, info = self.step_all(
            self.keys(), self.state, actions, self.params
        )
        return obs, *ends, {"final_obs": info["final_observation"]}

    def keys(self) -> Any:
        """A new key for each copy."""
        self.key, key = jax.random.split(self.key)
        return jax.random.split(key, self.num_envs)
