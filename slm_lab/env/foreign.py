"""Vector environments of other packages: which autoreset mode one has, and one copy of
it as a single environment.

They start a new episode in the step after the end (NEXT_STEP), in the same step
(SAME_STEP), or when `reset` is told so (DISABLED)."""

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
from slm_lab.core.types import Array, IntArray
from slm_lab.env.convert.nested import batch_of_one

GymnasiumVectorEnv: TypeAlias = gymnasium.vector.VectorEnv[Any, Any, Any]

Creator: TypeAlias = Callable[..., GymnasiumVectorEnv]

OWN_OF_NATIVE = frozenset({"max_episode_steps", "autoreset_mode", "num_envs"})
"""Arguments of native versions that the lab sets. A single environment may have its own
of these names."""

FINAL_OBS = ("final_obs", "final_observation")
"""The keys of last observations in an info: of Gymnasium, and of its older versions."""


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


def host_array(values: Any) -> Array:
    """Values as an array, which may share their memory. A simulator may return arrays
    of JAX, or tensors of torch, on the host or on a GPU."""
    to_host = getattr(values, "cpu", None)  # of torch: others copy by themselves
    if to_host is not None:
        values = to_host()
    return np.asarray(values)


def final_rows(env: object, info: Mapping[str, Any], done_index: IntArray) -> Array:
    """(K, ...) the last observations of the done rows (K,), from the info of a step in
    mode SAME_STEP. Raises LabError if it has none."""
    for key in FINAL_OBS:
        if key not in info:
            continue
        rows = host_array(info[key])
        if rows.dtype != np.object_:
            return rows[done_index]
        # An object array from Gymnasium; other rows are invalid.
        return np.stack([np.asarray(rows[i]) for i in done_index])
    raise LabError(
        f"{type(env).__name__} ended an episode without final_obs in its info, which "
        "the autoreset mode SAME_STEP promises; add it there, or say another "
        "autoreset_mode in its metadata"
    )


@final
class SingleOfVector(gymnasium.Env[Any, Any]):
    """One copy of a vector environment as a single environment, in whichever mode."""

    def __init__(self, target: Any, **arguments: Any) -> None:
        """`target` is a `vector_entry_point`."""
        made = make_in_mode(load_creator(target), num_envs=1, **arguments)
        self._env = made.env
        self._resets_itself = made.mode is AutoresetMode.SAME_STEP
        self._first: Array | None = None
        """The first observation of the next episode, if that has begun."""
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
            obs, _ = self._env.reset(seed=seed, options=options)
            first = host_array(obs)[0].copy()
        return first, {}

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        batch = batch_of_one(self.action_space, action)
        obs, reward, terminated, truncated, info = self._env.step(batch)
        last = host_array(obs)[0].copy()
        is_over = bool(terminated[0]) or bool(truncated[0])
        if is_over and self._resets_itself:
            self._first = last
            last = final_rows(self._env, info, np.zeros(1, np.int64))[0]
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

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
