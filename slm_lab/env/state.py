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
from slm_lab.env.simulators import mujoco_state

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class StateAdapter:
    """How to read the state of one kind of environment or wrapper, and how to write it back."""

    save: Callable[[Any], StateDict]
    load: Callable[[Any, StateDict], None]
    fits: Callable[[Any], bool] = lambda _: True
    """Whether this very environment can be saved exactly."""


def attributes(*names: str) -> StateAdapter:
    """The state is these attributes: arrays, tuples of numbers, numbers or None."""

    def save(env: Any) -> StateDict:
        return {name: _plain(getattr(env, name)) for name in names}

    def load(env: Any, state: StateDict) -> None:
        for name in names:
            setattr(env, name, deepcopy(state[name]))

    return StateAdapter(save, load)


def _draws_nothing(env: Any) -> bool:
    """ALE keeps the action that a sticky one repeats to itself; `AtariGame` has its own."""
    return bool(env.ale.getFloat("repeat_action_probability") == 0.0)


def _save_game(env: Any) -> StateDict:
    state = env.ale.cloneState(include_rng=True)
    return {"ale": np.frombuffer(state.serialize(), np.uint8).copy()}


def _load_game(env: Any, state: StateDict) -> None:
    from ale_py import ALEState

    env.ale.restoreState(ALEState(state["ale"].tobytes()))


def _end_checks(checker: Any) -> None:
    """Gymnasium's checks look at the first steps only and compare each with the one before."""
    checker.checked_reset = checker.checked_step = checker.checked_data_reuse = True


ENV_ADAPTERS: dict[str, StateAdapter] = {
    "ale_py.env:AtariEnv": StateAdapter(_save_game, _load_game, _draws_nothing),
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": attributes("state"),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": attributes(
        "state", "steps_beyond_terminated"
    ),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": attributes(
        "state"
    ),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": attributes("state"),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": attributes("state", "last_u"),
    **dict.fromkeys(
        (f"gymnasium.envs.mujoco.{name}" for name in mujoco_state.CLASSES),
        StateAdapter(
            mujoco_state.save_simulation,
            mujoco_state.load_simulation,
            mujoco_state.is_all_simulation,
        ),
    ),
}

WRAPPER_ADAPTERS: dict[str, StateAdapter] = {
    "slm_lab.env.simulators.atari_game:AtariGame": attributes(
        "_screens", "_stack", "_elapsed", "_lives", "_continues", "_held", "_held_strength"
    ),
    "slm_lab.env.convert.flatten:FlatObservation": attributes(),
    "gymnasium.wrappers.common:OrderEnforcing": attributes("_has_reset"),
    "gymnasium.wrappers.common:PassiveEnvChecker": StateAdapter(
        save=lambda _: {}, load=lambda checker, _: _end_checks(checker)
    ),
    "gymnasium.wrappers.common:TimeLimit": attributes("_elapsed_steps"),
    "slm_lab.env.time_limit:TimeLimit": attributes("_elapsed_steps"),
}


def has_exact_state(env: Env) -> bool:
    """Whether the environment and all of its wrappers have an adapter that fits."""
    adapter = ENV_ADAPTERS.get(_key(env.unwrapped))
    if adapter is None or not adapter.fits(env.unwrapped):
        return False
    return all(_key(wrapper) in WRAPPER_ADAPTERS for wrapper in _wrappers(env))


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
