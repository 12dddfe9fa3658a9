"""Vector environments of other packages: which autoreset mode one has, and one copy of
it as a single environment.

In mode NEXT_STEP a new episode starts in the step after the end, in SAME_STEP in the
same step. In mode DISABLED `reset` starts new episodes in the copies of its mask."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.registry import load_target
from slm_lab.core.types import IntArray
from slm_lab.env.convert.batch import host_array, host_arrays, rows_at
from slm_lab.env.convert.mask import drop_flags
from slm_lab.env.convert.nested import batch_of_one, element

GymnasiumVectorEnv: TypeAlias = gymnasium.vector.VectorEnv[Any, Any, Any]

Creator: TypeAlias = Callable[..., GymnasiumVectorEnv]

OWN_OF_NATIVE = frozenset({"max_episode_steps", "autoreset_mode", "num_envs"})
"""Arguments of native versions that the lab sets. A single environment may have its own
of these names."""

FINAL_OBS = ("final_obs", "final_observation")
"""The keys of last observations in an info: of Gymnasium, and of its older versions."""

FINAL_INFO = "final_info"
"""The key of last infos in an info."""


def vector_creator(entry: GymnasiumSpec) -> Creator:
    """The class or function of the native vector version of `entry`."""
    return load_creator(entry.vector_entry_point)


def load_creator(target: Any) -> Creator:
    """The class or function that a `vector_entry_point` names or is."""
    creator: Creator
    creator = target
    if isinstance(target, str):
        creator = load_target(target)
    return creator


def takes_mode(creator: Creator) -> bool:
    """Whether the mode is an argument."""
    return "autoreset_mode" in inspect.signature(creator).parameters


def takes(creator: Creator, name: str) -> bool:
    """Whether it accepts an argument of this name."""
    parameters = inspect.signature(creator).parameters
    any_name = inspect.Parameter.VAR_KEYWORD
    return name in parameters or any(p.kind is any_name for p in parameters.values())


def own_mode(creator: Creator) -> AutoresetMode | None:
    """The mode in the metadata of a class; None if there is none."""
    if not isinstance(creator, type):
        return None
    if not issubclass(creator, gymnasium.vector.VectorEnv):
        return None
    return _mode_in(creator.metadata)


def _mode_in(metadata: Mapping[str, Any]) -> AutoresetMode | None:
    if metadata is gymnasium.vector.VectorEnv.metadata:
        # the dict of the base is no class's own: ale-py writes its mode into it
        return None
    mode = metadata.get("autoreset_mode")
    if isinstance(mode, AutoresetMode):
        return mode
    return None


class InMode(NamedTuple):
    """A vector environment, and the mode in which it resets."""

    env: GymnasiumVectorEnv
    mode: AutoresetMode


def make_in_mode(creator: Creator, **arguments: Any) -> InMode:
    """The vector environment in mode SAME_STEP if it takes one, else in mode DISABLED.
    One that takes no mode has its own: as Gymnasium says, NEXT_STEP if it names
    none."""
    if not takes_mode(creator):
        env = creator(**arguments)
        return InMode(env, _mode_in(env.metadata) or AutoresetMode.NEXT_STEP)
    asked = AutoresetMode.SAME_STEP
    try:
        env = creator(autoreset_mode=asked, **arguments)
    except (AssertionError, NotImplementedError, ValueError) as error:
        asked = AutoresetMode.DISABLED
        try:
            env = creator(autoreset_mode=asked, **arguments)
        except Exception:
            raise error from None  # the mode was not why
    return InMode(env, asked)


class ForeignStep(NamedTuple):
    """What a step of a vector environment of N copies returned."""

    obs: Any
    reward: Any
    """(N,)"""
    terminated: Any
    """(N,), like `truncated`"""
    truncated: Any
    info: Mapping[str, Any]


RESULTS = ("rewards", "terminations", "truncations")


def vector_step(
    env: GymnasiumVectorEnv, action: Any, convert: Callable[[Any], Any] = host_array
) -> ForeignStep:
    """A step of `env`. `convert` makes arrays or tensors of rewards and ends. Raises
    LabError unless there are N of each, and all five results."""
    results = env.step(action)
    name = f"{type(env).__name__}.step()"
    count = len(results) if isinstance(results, tuple | list) else 1
    if count != len(ForeignStep._fields):
        raise LabError(
            f"{name} returned {count} results; it must return observations, "
            f"{', '.join(RESULTS)} and infos"
        )
    obs, *numbers, info = results
    if not isinstance(info, Mapping):
        kind = type(info).__name__
        raise LabError(f"{name} returned infos of the type {kind}; return a dict")
    arrays = []
    for what, values in zip(RESULTS, numbers, strict=True):
        try:
            array = convert(values)
            shape = tuple(array.shape)
        except (AttributeError, BufferError, TypeError, ValueError):
            array = None
            shape = ()
        if shape == (env.num_envs, 1):
            array = array[:, 0]
        elif shape != (env.num_envs,):
            fault = f"{what} of the shape {shape}"
            if shape == ():
                fault = f"{values!r:.40} as {what}"
            raise LabError(
                f"{name} returned {fault}; it must return an array of the shape "
                f"({env.num_envs},), one of each copy"
            )
        arrays.append(array)
    reward, terminated, truncated = arrays
    return ForeignStep(
        obs=obs, reward=reward, terminated=terminated, truncated=truncated, info=info
    )


def final_rows(env: object, info: Mapping[str, Any], done_index: IntArray) -> Any:
    """(K, ...) the last observations of the done rows (K,), or their parts. They are in
    the info of a step in mode SAME_STEP. Raises LabError if it has none."""
    for key in FINAL_OBS:
        if key not in info:
            continue
        try:
            return rows_at(info[key], done_index)
        except IndexError:
            raise LabError(
                f"the {key} in an info of {type(env).__name__} has too few rows; it "
                "needs one for each copy, of copies that go on, too"
            ) from None
    raise LabError(
        f"{type(env).__name__} ended an episode without final_obs in its info, which "
        "the autoreset mode SAME_STEP promises; add it there, or say another "
        "autoreset_mode in its metadata"
    )


def final_info(
    env: object, info: Mapping[str, Any], done_index: IntArray
) -> dict[str, Any]:
    """The last infos of the done rows (K,), from the info of a step in mode SAME_STEP.
    Raises LabError if it has none."""
    infos = info.get(FINAL_INFO)
    if not isinstance(infos, Mapping):
        raise LabError(
            f"{type(env).__name__} ended an episode without a dict final_info in its "
            "info, where the mask of the last state should be; add it there"
        )
    rows: dict[str, Any] = rows_at(infos, done_index)
    return rows


def single_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info of one copy, from the info of a vector environment of one copy. It has
    no last observations."""
    single: dict[str, Any] = {}
    for key, value in drop_flags(info).items():
        marks = info.get(f"_{key}")
        is_marked_missing = marks is not None and not marks[0]
        if key in FINAL_OBS or is_marked_missing:
            continue
        if isinstance(value, Mapping):
            single[key] = single_info(value)
            continue
        try:
            rows = host_array(value)
        except TypeError:  # no array, such as a key of JAX
            continue
        single[key] = value if rows.ndim == 0 else rows[0]
    return single


@final
class SingleOfVector(gymnasium.Env[Any, Any]):
    """One copy of a vector environment as a single environment, in whichever mode."""

    def __init__(self, target: Any, **arguments: Any) -> None:
        """`target` is a `vector_entry_point`."""
        creator = load_creator(target)
        made = make_in_mode(creator, num_envs=1, **arguments)
        self._env = made.env
        self._resets_itself = made.mode is AutoresetMode.SAME_STEP
        names_mode = takes_mode(creator) or _mode_in(made.env.metadata) is not None
        self._tells_by_info = not names_mode
        """Whether a last observation in the info is all that shows SAME_STEP."""
        self._first: tuple[Any, dict[str, Any]] | None = None
        """The first observation and info of the next episode, if that has begun."""
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self.metadata = self._env.metadata
        self.render_mode = self._env.render_mode

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        first = self._first
        self._first = None
        if first is None or seed is not None or options is not None:
            obs, info = self._env.reset(seed=seed, options=options)
            first = self._single(obs), single_info(info)
        return first

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        batch = batch_of_one(self.action_space, action)
        obs, reward, terminated, truncated, info = vector_step(self._env, batch)
        ends = bool(terminated[0]), bool(truncated[0])
        last_obs = self._single(obs)
        last_info = single_info(info)
        if self._tells_by_info and any(key in info for key in FINAL_OBS):
            self._resets_itself = True
        if any(ends) and self._resets_itself:
            self._first = last_obs, last_info
            last_obs = self._single(final_rows(self._env, info, np.zeros(1, np.int64)))
            last_info = last_info.get(FINAL_INFO, {})
        return last_obs, float(reward[0]), *ends, last_info

    def _single(self, obs: Any) -> Any:
        """The observation in a batch of one. It is new."""
        try:
            single = element(self.observation_space, host_arrays(obs), 0)
        except (IndexError, KeyError, TypeError) as error:
            raise LabError(
                f"{type(self._env).__name__} returned observations that are not in its "
                f"observation_space: {type(error).__name__}: {error}"
            ) from error
        return copy.deepcopy(single)

    @override
    def render(self) -> Any:
        images = self._env.render()
        return None if images is None else images[0]

    @override
    def close(self) -> None:
        self._env.close()


@final
class SingleCreator:
    """Makes `SingleOfVector`, with the arguments of the vector version."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __call__(self, **arguments: Any) -> SingleOfVector:
        """The environment."""
        return SingleOfVector(self._target, **arguments)

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(load_creator(self._target))
        parameters = signature.parameters.values()
        return signature.replace(
            parameters=[p for p in parameters if p.name not in OWN_OF_NATIVE]
        )
