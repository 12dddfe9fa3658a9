"""Exact state of single gymnasium environments: one adapter per family.

Nothing is pickled: several simulators pickle without complaint and come back different. An
environment can be saved exactly when its own class and all of its wrappers have a row below;
a subclass has not, because it may keep more state.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from slm_lab.core.types import StateDict

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class StateAdapter:
    """How to read the state of one kind of environment or wrapper, and how to write it back."""

    save: Callable[[Any], StateDict]
    load: Callable[[Any, StateDict], None]


def attributes(*names: str) -> StateAdapter:
    """The state is these attributes: arrays, tuples of numbers, numbers or None."""

    def save(env: Any) -> StateDict:
        return {name: _plain(getattr(env, name)) for name in names}

    def load(env: Any, state: StateDict) -> None:
        for name in names:
            setattr(env, name, deepcopy(state[name]))

    return StateAdapter(save, load)


ENV_ADAPTERS: dict[str, StateAdapter] = {
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": attributes("state"),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": attributes(
        "state", "steps_beyond_terminated"
    ),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": attributes(
        "state"
    ),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": attributes("state"),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": attributes("state", "last_u"),
}

WRAPPER_ADAPTERS: dict[str, StateAdapter] = {
    "slm_lab.env.flatten:FlatObservation": attributes(),
    "gymnasium.wrappers.common:OrderEnforcing": attributes("_has_reset"),
    "gymnasium.wrappers.common:PassiveEnvChecker": attributes("checked_reset", "checked_step"),
    "gymnasium.wrappers.common:TimeLimit": attributes("_elapsed_steps"),
}


def has_exact_state(env: Env) -> bool:
    """Whether the environment and all of its wrappers have an adapter."""
    return _key(env.unwrapped) in ENV_ADAPTERS and all(
        _key(wrapper) in WRAPPER_ADAPTERS for wrapper in _wrappers(env)
    )


def save_env_state(env: Env) -> StateDict:
    """The generator, and the running episode where that can be saved exactly."""
    state: StateDict = {"rng": env.unwrapped.np_random.bit_generator.state, "episode": None}
    if has_exact_state(env):
        state["episode"] = {
            "env": ENV_ADAPTERS[_key(env.unwrapped)].save(env.unwrapped),
            "wrappers": [WRAPPER_ADAPTERS[_key(w)].save(w) for w in _wrappers(env)],
        }
    return state


def load_env_state(env: Env, state: StateDict) -> None:
    """Restores what `save_env_state` gave into an environment built in the same way."""
    env.unwrapped.np_random.bit_generator.state = state["rng"]
    episode = state["episode"]
    if episode is None:
        return
    ENV_ADAPTERS[_key(env.unwrapped)].load(env.unwrapped, episode["env"])
    for wrapper, wrapper_state in zip(_wrappers(env), episode["wrappers"], strict=True):
        WRAPPER_ADAPTERS[_key(wrapper)].load(wrapper, wrapper_state)


def _wrappers(env: Env) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """From the outermost wrapper inwards."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _key(env: Env) -> str:
    return f"{type(env).__module__}:{type(env).__qualname__}"


def _plain(value: Any) -> Any:
    """An own copy made of arrays and python numbers only."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | list):
        return np.array(value)
    return value
