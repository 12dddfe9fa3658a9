"""Exact state of single Gymnasium environments: one adapter per family.

Nothing is pickled: several simulators pickle without an error, but differ once
restored. An environment can be saved exactly if its class and the classes of all its
wrappers have an adapter below. A subclass has none, because it may have more state."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from slm_lab.core.types import StateDict
from slm_lab.env.changing import ChangingEnv, changing_env
from slm_lab.env.interface import Env
from slm_lab.env.lookup import MUJOCO


@dataclass(frozen=True)
class StateAdapter:
    """Saves and loads the state of one class of environments or wrappers."""

    save: Callable[[Any], StateDict]
    load: Callable[[Any, StateDict], None]
    fits: Callable[[Any], bool] = lambda _: True
    """Whether this environment can be saved exactly."""


def attributes(*names: str) -> StateAdapter:
    """An adapter for these attributes: arrays, tuples of numbers, numbers or None."""

    def save(env: Any) -> StateDict:
        return {name: _plain(getattr(env, name)) for name in names}

    def load(env: Any, state: StateDict) -> None:
        for name in names:
            setattr(env, name, deepcopy(state[name]))

    return StateAdapter(save, load)


def _has_no_sticky_actions(env: Any) -> bool:
    """ALE does not save the action that a sticky action repeats; `AtariGame` implements
    its own."""
    return bool(env.ale.getFloat("repeat_action_probability") == 0.0)


def _save_game(env: Any) -> StateDict:
    state = env.ale.cloneState(include_rng=True)
    return {"ale": np.frombuffer(state.serialize(), np.uint8).copy()}


def _load_game(env: Any, state: StateDict) -> None:
    from ale_py import ALEState

    env.ale.restoreState(ALEState(state["ale"].tobytes()))


KINEMATICS = ("xpos", "xipos")
"""Positions of bodies and of their centres of mass in the last simulated step. Ant and
Humanoid measure their velocity from them. Recomputed, they would be the positions after
that step."""

MUJOCO_CLASSES = tuple(str(gymnasium.spec(f"{name}-v5").entry_point) for name in MUJOCO)
"""Environments whose steps depend only on MuJoCo's integration state and `KINEMATICS`.
The goals of Pusher and Reacher are positions of bodies."""


def _save_simulation(env: Any) -> StateDict:
    """The state that a step depends on; about 2 kB for Humanoid. It is
    `mjSTATE_INTEGRATION` (time, positions, velocities, warm start, controls, applied
    forces, …) and `KINEMATICS`."""
    import mujoco

    integration = np.empty(mujoco.mj_stateSize(env.model, _integration()))
    mujoco.mj_getState(env.model, env.data, integration, _integration())
    kinematics = {name: getattr(env.data, name).copy() for name in KINEMATICS}
    return {"integration": integration, **kinematics}


def _load_simulation(env: Any, state: StateDict) -> None:
    """Restores the result of `_save_simulation`. The next step recomputes everything
    else."""
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["integration"], _integration())
    for name in KINEMATICS:
        getattr(env.data, name)[:] = state[name]


def _is_all_simulation(env: Any) -> bool:
    """Whether the model has no other state. The model of an `xml_file` may have plugins
    or sleeping bodies, which have state."""
    import mujoco

    # No body sleeps before MuJoCo 3.3.8.
    sleeps = int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))
    return env.model.nplugin == 0 and not env.model.opt.enableflags & sleeps


def _integration() -> int:
    import mujoco

    return int(mujoco.mjtState.mjSTATE_INTEGRATION)


def _save_minatar(env: Any) -> StateDict:
    """The state of a game of MinAtar: numbers, arrays and lists of them."""
    game = env.game
    variables = {
        key: deepcopy(v) for key, v in vars(game.env).items() if key != "random"
    }
    return {
        "game": variables,
        "last_action": game.last_action,
        "random": game.random.get_state(legacy=False),
    }


def _load_minatar(env: Any, state: StateDict) -> None:
    game = env.game
    vars(game.env).update(deepcopy(state["game"]))
    game.last_action = state["last_action"]
    game.random.set_state(state["random"])
    game.env.random = game.random


def _save_team(team: Any) -> StateDict:
    """The state of a parallel environment: its own, and what the lab knows of it."""
    return {
        "env": ENV_ADAPTERS[_key(team.env)].save(team.env),
        "agents": list(team.agents),
        "elapsed": team.elapsed,
        "seen": deepcopy(team.seen),
        "infos": deepcopy(team.infos),
    }


def _load_team(team: Any, state: StateDict) -> None:
    ENV_ADAPTERS[_key(team.env)].load(team.env, state["env"])
    team.agents = tuple(state["agents"])
    team.elapsed = state["elapsed"]
    team.seen = deepcopy(state["seen"])
    team.infos = deepcopy(state.get("infos", {}))


def _has_known_team(team: Any) -> bool:
    """Whether the class of the parallel environment has an adapter."""
    adapter = ENV_ADAPTERS.get(_key(team.env))
    return adapter is not None and adapter.fits(team.env)


def _end_checks(checker: Any, _: StateDict) -> None:
    checker.checked_reset = checker.checked_step = checker.checked_data_reuse = True


ENV_ADAPTERS: dict[str, StateAdapter] = {
    "ale_py.env:AtariEnv": StateAdapter(_save_game, _load_game, _has_no_sticky_actions),
    "minatar.gym:BaseEnv": StateAdapter(_save_minatar, _load_minatar),
    "slm_lab.env.vector.agents:Seat": attributes(),
    "slm_lab.env.pettingzoo:Team": StateAdapter(
        _save_team, _load_team, _has_known_team
    ),
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": attributes("state"),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": attributes(
        "state", "steps_beyond_terminated"
    ),
    "gymnasium.envs.classic_control.continuous_mountain_car:"
    "Continuous_MountainCarEnv": attributes("state"),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": attributes("state"),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": attributes(
        "state", "last_u"
    ),
    **dict.fromkeys(
        MUJOCO_CLASSES,
        StateAdapter(_save_simulation, _load_simulation, _is_all_simulation),
    ),
}

WRAPPER_ADAPTERS: dict[str, StateAdapter] = {
    "slm_lab.env.simulators.atari_game:AtariGame": attributes(
        "_screens",
        "_stack",
        "_elapsed",
        "_lives",
        "_continues",
        "_held",
        "_held_strength",
    ),
    "slm_lab.env.convert.mask:ActionMasks": attributes(),
    "slm_lab.env.convert.parts:ObservationRows": attributes(),
    "gymnasium.wrappers.common:OrderEnforcing": attributes("_has_reset"),
    "gymnasium.wrappers.common:PassiveEnvChecker": StateAdapter(
        lambda _: {}, _end_checks
    ),
    "gymnasium.wrappers.common:TimeLimit": attributes("_elapsed_steps"),
    "slm_lab.env.vector.raw:LastInfo": attributes(),
    "slm_lab.env.vector.raw:ResetOptions": attributes(),
    "slm_lab.env.vector.raw:TimeLimit": attributes("_elapsed_steps"),
}


def has_exact_state(env: Env) -> bool:
    """Whether the environment, its generator and all its wrappers can be saved
    exactly."""
    adapter = ENV_ADAPTERS.get(_key(env.unwrapped))
    if adapter is None or not adapter.fits(env.unwrapped):
        return False
    wrappers_fit = all(_key(wrapper) in WRAPPER_ADAPTERS for wrapper in _wrappers(env))
    return wrappers_fit and _generator_state(env) is not None


def save_env_state(env: Env) -> StateDict:
    """The state of the generator, or None if it cannot be saved, and the arguments that
    change. The running episode too, if it can be saved exactly."""
    state: StateDict = {"rng": _generator_state(env), "episode": None}
    changing = changing_env(env)
    if changing is not None:
        state["arguments"] = changing.state_dict()
    if has_exact_state(env):
        state["episode"] = {
            "env": ENV_ADAPTERS[_key(env.unwrapped)].save(env.unwrapped),
            "wrappers": [WRAPPER_ADAPTERS[_key(w)].save(w) for w in _wrappers(env)],
        }
    return state


def load_env_state(env: Env, state: StateDict) -> bool:
    """Restores the result of `save_env_state` into an environment built in the same
    way. Returns whether its generator is restored; if not, the next `reset` needs a
    seed."""
    changing = changing_env(env)
    if changing is not None and "arguments" in state:
        changing.load_state_dict(state["arguments"])
    saved = state["rng"]
    current = _generator_state(env)
    if (
        saved is None
        or current is None
        or current["bit_generator"] != saved["bit_generator"]
    ):
        return False
    env.unwrapped.np_random.bit_generator.state = saved
    episode = state["episode"]
    if episode is None:
        return True
    ENV_ADAPTERS[_key(env.unwrapped)].load(env.unwrapped, episode["env"])
    for wrapper, wrapper_state in zip(_wrappers(env), episode["wrappers"], strict=True):
        WRAPPER_ADAPTERS[_key(wrapper)].load(wrapper, wrapper_state)
    return True


def _generator_state(env: Env) -> StateDict | None:
    """The state of `np_random`; None if that is no NumPy Generator, or one of a foreign
    kind."""
    try:
        generator = env.unwrapped.np_random
    except Exception:  # a property of the environment's own may fail in any way
        return None
    if not isinstance(generator, np.random.Generator):
        return None
    bits = generator.bit_generator
    is_known = type(bits).__module__.startswith("numpy.random")
    if is_known:
        return dict(bits.state)
    return None


def _wrappers(env: Env) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """The wrappers with a state in an episode."""
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, ChangingEnv):
            yield env
        env = env.env


def _key(env: object) -> str:
    return f"{type(env).__module__}:{type(env).__qualname__}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | list):
        return np.array(value)
    return value
