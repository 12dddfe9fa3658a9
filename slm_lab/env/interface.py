"""Checks what an environment returns against Gymnasium's interface and its own
spaces."""

from collections.abc import Callable, Mapping
from itertools import dropwhile
from traceback import walk_tb
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array

Env: TypeAlias = gymnasium.Env[Any, Any]
AnySpace: TypeAlias = gymnasium.Space[Any]

RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"
NUMERIC = "biuf"
"""The kinds of NumPy's types of numbers, booleans too."""


def first_reset(env: Env, seed: int | None) -> tuple[Array, Any]:
    """The checked result of `env.reset`. Raises LabError if it breaks the interface."""
    return checked_reset(env, _checked(env, lambda: env.reset(seed=seed), reset_fault))


def first_step(env: Env, action: Any) -> tuple[Any, ...]:
    """The checked result of `env.step`. Raises LabError if it breaks the interface."""
    return checked_step(env, _checked(env, lambda: env.step(action), step_fault))


def checked_reset(env: Env, result: Any) -> tuple[Array, Any]:
    """A `result` of `env.reset`, its observation in the shape and type of the space.
    Raises LabError if it breaks the interface."""
    space = env.observation_space
    fault = reset_fault(result, space)
    if fault is not None:
        raise _refusal(env, fault)
    obs, info = result
    return _typed_obs(env, space, obs), info


def checked_step(env: Env, result: Any) -> tuple[Any, ...]:
    """A `result` of `env.step`, its observation in the shape and type of the space.
    Raises LabError if it breaks the interface."""
    space = env.observation_space
    fault = step_fault(result, space)
    if fault is not None:
        raise _refusal(env, fault)
    obs, *rest = result
    return _typed_obs(env, space, obs), *rest


def _typed_obs(env: Env, space: AnySpace, obs: Any) -> Array:
    array = np.asarray(obs)
    if array.dtype is space.dtype and array.shape == space.shape:
        return array
    assert space.dtype is not None
    try:
        return typed(array, space.dtype).reshape(space.shape or ())
    except ValueError as error:
        raise breaks_its_space(name_of(env), error) from None


def typed(array: Array, dtype: np.dtype[Any], path: tuple[str, ...] = ()) -> Array:
    """The observation, or a batch of them, in `dtype`. Floats may be rounded to other
    floats. Raises ValueError if `dtype` cannot hold a value, with the `path` of the
    part."""
    if array.dtype == dtype:
        return array
    check_numbers(array, path)
    try:
        cast = _cast(array, dtype)
        is_held = dtype.kind == "f" or bool((cast == array).all())
    except FloatingPointError:
        is_held = False
    if not is_held:
        value = f"{array.dtype} with the value {_first_lost(array, dtype)}"
        raise ValueError(f"{obs_name(path)} is {value}, which {dtype} cannot hold")
    return cast


@np.errstate(over="raise", invalid="ignore")  # as a decorator it takes half of the time
def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    return array.astype(dtype)


def check_numbers(array: Array, path: tuple[str, ...] = ()) -> None:
    """Raises ValueError unless the array has numbers."""
    if array.dtype.kind not in NUMERIC:
        raise ValueError(f"{obs_name(path)} is {array.tolist()!r:.60}, no number")


def _first_lost(array: Array, dtype: np.dtype[Any]) -> Any:
    """The first value that `dtype` cannot hold."""
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        changed = cast != array
    if dtype.kind == "f":
        changed = np.isinf(cast) & np.isfinite(array)
    return array[changed].flat[0]


def obs_name(path: tuple[str, ...]) -> str:
    """A part of an observation in messages."""
    if path:
        return f'the observation "{".".join(path)}"'
    return "the observation"


def breaks_its_space(name: str, fault: object) -> LabError:
    """The error for an observation of the environment `name` that is not in its
    space."""
    return LabError(
        f"{name} breaks its own observation space: {fault}; fix the environment, or "
        "wrap it so that the two agree"
    )


def _checked(
    env: Env, call: Callable[[], Any], fault_of: Callable[[Any, AnySpace], str | None]
) -> Any:
    """Returns the result of `call`. Wrappers may fail on results that break the
    interface. Then the fault of the environment below them counts, as it does if the
    result is at fault."""
    try:
        result = call()
    except (ValueError, TypeError, AttributeError) as error:
        fault = _fault_below(env)
        if str(error).startswith(f"{type(env.unwrapped).__qualname__}."):
            fault = f"{error}; reset() takes seed and options, step() an action"
        if _needs_options(error):
            fault = (
                "reset() is called with options=None, which it does not take "
                f"({error}); give it a default, or set env.reset_options"
            )
        if fault is None:
            raise
        raise _refusal(env, fault) from error
    if fault_of(result, env.observation_space) is not None:
        fault = _fault_below(env)
        if fault is not None:
            raise _refusal(env, fault)
    return result


def _needs_options(error: BaseException) -> bool:
    """Whether an error in the line of a `reset` about None is about its `options`,
    which are."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    is_reset = (
        frame.f_code.co_name == "reset" and frame.f_locals.get("options", ...) is None
    )
    return is_reset and "NoneType" in str(error)


def _fault_below(env: Env) -> str | None:
    """The fault of the environment below all wrappers, found by one more reset and
    step."""
    core = env.unwrapped
    try:
        fault = reset_fault(core.reset(), core.observation_space)
        return fault or step_fault(
            core.step(core.action_space.sample()), core.observation_space
        )
    except Exception:  # it returned nothing that could be checked
        return None


def _refusal(env: Env, fault: str) -> LabError:
    return LabError(
        f"the environment {name_of(env)} breaks Gymnasium's interface: {fault}"
    )


def check_spaces(name: str, observation_space: object, action_space: object) -> None:
    """Raises LabError unless both are spaces of Gymnasium."""
    spaces = {"observation_space": observation_space, "action_space": action_space}
    for what, space in spaces.items():
        if isinstance(space, gymnasium.Space):
            continue
        fault = f"its {what} is None after its construction; set it in __init__"
        if space is not None:
            kind = f"{type(space).__module__}.{type(space).__qualname__}"
            fault = (
                f"its {what} is a {kind}, not a space of gymnasium.spaces; import that"
            )
        raise LabError(f"the environment {name} breaks Gymnasium's interface: {fault}")


def name_of(env: Env) -> str:
    """The id of an environment, or the name of its class."""
    spec = env.unwrapped.spec
    if spec is None:
        return type(env.unwrapped).__name__
    return spec.id


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
    obs, *numbers, info = result
    for name, value in zip(("reward", "terminated", "truncated"), numbers, strict=True):
        if np.ndim(value) != 0 or value is None or isinstance(value, str):
            what = "one number" if name == "reward" else "true or false"
            return f"{name} of step() must be {what}, and was {_described(value)}"
    if not isinstance(info, Mapping):
        return f"info of step() must be a dict, and was {_described(info)}"
    return _obs_fault("step", obs, space)


def _obs_fault(method: str, obs: Any, space: AnySpace) -> str | None:
    """The fault of a wrong shape; `FlatObservation` checks observations with parts."""
    if space.shape is None or getattr(obs, "shape", None) == space.shape:
        return None
    try:
        shape = np.shape(obs)
        if _strip_ones(shape) == _strip_ones(space.shape):
            return None
        is_array = bool(shape) or np.asarray(obs).dtype.kind in NUMERIC
    except ValueError:  # lists of different lengths
        is_array = False
    if not is_array:
        return (
            f"the observation of {method}() must be an array, and was {_described(obs)}"
        )
    return (
        f"{method}() returned an observation of the shape {shape}, and its "
        f"observation_space has the shape {space.shape}"
    )


def _strip_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without leading ones: arrays that differ in these fit, as a number fits
    (1,)."""
    return tuple(dropwhile(lambda length: length == 1, shape))


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"an array of the shape {value.shape}"
    return f"{value!r:.60}"
