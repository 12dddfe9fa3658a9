"""Checks the first values that an environment returns against Gymnasium's interface."""

from collections.abc import Callable, Mapping
from itertools import dropwhile
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from slm_lab.core.errors import LabError

Env: TypeAlias = gymnasium.Env[Any, Any]
AnySpace: TypeAlias = gymnasium.Space[Any]

RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"


def first_reset(env: Env, seed: int | None) -> tuple[Any, Any]:
    """The checked result of `env.reset`. Raises LabError if it breaks the interface."""
    obs, info = _checked(env, lambda: env.reset(seed=seed), reset_fault)
    return obs, info


def first_step(env: Env, action: Any) -> tuple[Any, ...]:
    """The checked result of `env.step`. Raises LabError if it breaks the interface."""
    return _checked(env, lambda: env.step(action), step_fault)


def _checked(
    env: Env, call: Callable[[], Any], fault_of: Callable[[Any, AnySpace], str | None]
) -> Any:
    try:
        result = call()
    except (ValueError, TypeError, AttributeError) as error:
        fault = _fault_below(env)  # wrappers fail on results that break the interface
        if str(error).startswith(f"{type(env.unwrapped).__qualname__}."):
            fault = f"{error}; reset() takes seed and options, step() an action"
        if fault is None:
            raise
        raise _refusal(env, fault) from error
    if (fault := fault_of(result, env.observation_space)) is not None:
        raise _refusal(env, _fault_below(env) or fault)
    return result


def _fault_below(env: Env) -> str | None:
    """The fault of the environment below all wrappers, found by one more reset and step."""
    core = env.unwrapped
    try:
        fault = reset_fault(core.reset(), core.observation_space)
        return fault or step_fault(core.step(core.action_space.sample()), core.observation_space)
    except Exception:  # it returned nothing that could be checked
        return None


def _refusal(env: Env, fault: str) -> LabError:
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    return LabError(f"the environment {name} breaks Gymnasium's interface: {fault}")


def reset_fault(result: Any, space: AnySpace) -> str | None:
    """The fault of a result of `reset`; None if it has none."""
    if not isinstance(result, tuple) or len(result) != 2:
        return f"reset() must return {RESET}, and returned {_described(result)}"
    if not isinstance(result[1], Mapping):
        return f"info of reset() must be a dict, and was {_described(result[1])}"
    return _obs_fault("reset", result[0], space)


def step_fault(result: Any, space: AnySpace) -> str | None:
    """The fault of a result of `step`; None if it has none."""
    if not isinstance(result, tuple) or len(result) != 5:
        old = isinstance(result, tuple) and len(result) == 4
        hint = ": done was split into terminated and truncated" if old else ""
        return f"step() must return {STEP}, and returned {_described(result)}{hint}"
    obs, *numbers, _ = result
    for name, value in zip(("reward", "terminated", "truncated"), numbers, strict=True):
        if np.ndim(value) != 0 or value is None:
            what = "one number" if name == "reward" else "true or false"
            return f"{name} of step() must be {what}, and was {_described(value)}"
    return _obs_fault("step", obs, space)


def _obs_fault(method: str, obs: Any, space: AnySpace) -> str | None:
    """The fault of a wrong shape; `FlatObservation` checks observations with parts."""
    if space.shape is None:
        return None
    try:
        shape = np.shape(obs)
    except ValueError:  # lists of different lengths
        return f"the observation of {method}() must be an array, and was {_described(obs)}"
    if _without_ones(shape) == _without_ones(space.shape):
        return None
    return (
        f"{method}() returned an observation of the shape {shape}, and its observation_space has "
        f"the shape {space.shape}"
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without leading ones: arrays that differ in these fit, as a number fits (1,)."""
    return tuple(dropwhile(lambda length: length == 1, shape))


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"an array of the shape {value.shape}"
    return f"{value!r:.60}"
