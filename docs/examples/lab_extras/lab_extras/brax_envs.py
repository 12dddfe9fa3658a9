"""Environments of Brax and MuJoCo Playground, which JAX computes, as a vector
environment of Gymnasium."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from jax import numpy as jnp


def load(library: str, task: str) -> Any:
    """One environment with the interface of Brax, which Playground has too."""
    if library == "playground":
        from mujoco_playground import registry

        return registry.load(task)
    from brax import envs

    return envs.get_environment(task)


def box(size: Any) -> spaces.Space[Any]:
    """The space of observations of this size, or of parts with these sizes."""
    if isinstance(size, Mapping):
        return spaces.Dict({key: box(part) for key, part in size.items()})
    return spaces.Box(-np.inf, np.inf, np.atleast_1d(size), np.float32)


class Brax(VectorEnv[Any, Any, Any]):
    """`task` of the library "brax" or "playground" in N copies, such as "hopper". An
    ended episode begins anew in the same step, at a new first state."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        library: str = "brax",
        task: str = "inverted_pendulum",
        max_episode_steps: int = 1000,
    ) -> None:
        env = load(library, task)
        self.num_envs = num_envs
        self.single_observation_space = box(env.observation_size)
        self.single_action_space = spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.key = jax.random.key(0)
        reset_all = jax.vmap(env.reset)

        def step_all(state: Any, age: Any, keys: Any, actions: Any) -> Any:
            last = jax.vmap(env.step)(state, actions)
            terminated = last.done > 0
            truncated = ~terminated & (age + 1 >= max_episode_steps)
            done = terminated | truncated
            begun = jax.lax.cond(done.any(), lambda: reset_all(keys), lambda: last)

            def chosen(first: Any, other: Any) -> Any:
                if other.shape[:1] != done.shape:
                    return other  # it is empty, or the same for all copies
                rows = done.reshape(-1, *[1] * (other.ndim - 1))
                return jnp.where(rows, first, other)

            state = jax.tree.map(chosen, begun, last)
            age = jnp.where(done, 0, age + 1)
            return state, age, last.obs, last.reward, terminated, truncated

        self.reset_all = jax.jit(reset_all)
        self.step_all = jax.jit(step_all)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Arrays of JAX: the lab takes them as they are."""
        if seed is not None:
            self.key = jax.random.key(seed)
        self.state = self.reset_all(self.keys())
        self.age = jnp.zeros(self.num_envs, jnp.int32)
        return self.state.obs, {}

    def step(self, actions: Any) -> Any:
        """Observations, rewards, terminated, truncated, info."""
        self.state, self.age, last_obs, *ends = self.step_all(
            self.state, self.age, self.keys(), actions
        )
        return self.state.obs, *ends, {"final_obs": last_obs}

    def keys(self) -> Any:
        """A new key for each copy."""
        self.key, key = jax.random.split(self.key)
        return jax.random.split(key, self.num_envs)
