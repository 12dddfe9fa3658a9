"""Which actions an environment allows now, as a part of its observations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.types import Array, BoolArray, IntArray
from slm_lab.env.convert.nested import (
    COMPOSITE,
    name_of_part,
    part_at,
    parts_of,
    parts_without,
    path_of,
    values_without,
)
from slm_lab.env.interface import NUMERIC, AnySpace, Env

OBS = "obs"
"""The part with the observation of an environment whose mask comes apart from it."""

MASK = "action_mask"
"""The part with the mask."""

INFO = "info."
"""The prefix of a mask in the info of `reset` and `step`."""


class MaskError(LabError):
    """A mask of an environment that is missing or wrong. Found before a run, it is a
    problem of the spec."""

    def __init__(self, place: str, fault: str) -> None:
        super().__init__(place, fault)
        self.place = place
        self.fault = fault

    @override
    def __str__(self) -> str:
        return f'env.action_mask = "{self.place}": {self.fault}'


class MaskReader:
    """Reads the mask at `place`: "info.KEY", or a part of the observation. A mask has a
    number for each value of each Discrete component of an action. It is 1 where the
    value is allowed, 0 where not. It is one array, or one array per component in a
    list, Tuple or Dict. The mask of an action in parts may have the same parts. A part
    whose shape is the sizes of a MultiDiscrete action has a number for each combination
    of values. Then the agent's action is one choice among the combinations. Raises
    SpecError if actions have no such component, or the observation no such part."""

    def __init__(
        self,
        place: str,
        observation_space: AnySpace,
        action_space: AnySpace,
        env_name: str,
    ) -> None:
        self.place = place
        self.is_in_info = place.startswith(INFO)
        self.key = place.removeprefix(INFO)
        if not self.key:
            message = 'must name a key of the info, as "info.action_mask"'
            raise SpecError.of("env", "env.action_mask", message, place)
        self._env_name = env_name
        self._action_space = action_space
        sizes = action_sizes(action_space)
        if sizes is None:
            message = (
                f"masks are for Discrete and MultiDiscrete actions, and the "
                f"environment's are {action_space}; remove it"
            )
            raise SpecError.of("env", "env.action_mask", message, place)
        self._path: Sequence[Any] = ()
        """The keys that lead to the mask in an observation."""
        self._is_joint = False
        """Whether it has a number for each combination of an action's components."""
        if not self.is_in_info:
            self._path = self._path_in(observation_space)
            part = part_at(observation_space, self._path)
            self._is_joint = _counts_combinations(part.shape, action_space)
        if self._is_joint:
            sizes = np.array([sizes.prod()])
        self.sizes: tuple[int, ...] = tuple(sizes.tolist())
        """The values of each component of an action, or the number of their
        combinations."""
        self.num_values = sum(self.sizes)
        """A, the values of all components."""
        self._starts = np.cumsum(sizes) - sizes
        self._has_parts = isinstance(observation_space, COMPOSITE)
        self.others = self._others(observation_space)
        """The parts beside the mask."""
        mask = spaces.MultiBinary(self.num_values)
        self.space = spaces.Dict({**self.others, MASK: mask})
        """Observations with the mask as their part `MASK`."""

    def _path_in(self, space: AnySpace) -> Sequence[Any]:
        path = path_of(space, self.key)
        if path is None:
            names = ", ".join(name_of_part(path) for path, _ in parts_of(space))
            message = (
                f'the observation has no part "{self.key}"; it has '
                f'{names or "no parts"}; a mask in the info is "info.KEY"'
            )
            raise SpecError.of("env", "env.action_mask", message, self.place)
        return path

    def _others(self, space: AnySpace) -> dict[str, AnySpace]:
        parts = {OBS: space}
        if self._has_parts:
            parts = parts_without(space, self._path)
        if MASK in parts:
            message = (
                f'the observation has another part "{MASK}"; name that, or leave it '
                "out with gymnasium.wrappers:FilterObservation"
            )
            raise SpecError.of("env", "env.action_mask", message, self.place)
        return parts

    def parts(self, obs: Any) -> dict[str, Any]:
        """The parts of an observation of the environment beside the mask."""
        if not self._has_parts:
            return {OBS: obs}
        return values_without(obs, self._path)

    def find(self, obs: Any, info: Mapping[str, Any], method: str) -> Any:
        """The mask of an observation, or the masks of a batch, as the environment gives
        them. Raises MaskError if it is missing."""
        holder: Any = obs
        what = "observation"
        path = self._path
        if self.is_in_info:
            holder = info
            what = "info"
            path = [self.key] if self.key in info else self.key.split(".")
        mask = holder
        try:
            for key in path:
                within = mask
                mask = within[key]
            if not _is_marked_missing(within, key):
                return mask
        except (KeyError, IndexError, TypeError):
            pass
        keys = ", ".join(map(str, holder)) if isinstance(holder, Mapping) else ""
        raise MaskError(
            self.place,
            f"the {what} of {method}() of {self._env_name} has no {self.key}; it has "
            f"{keys or 'nothing'}",
        )

    def read_batch(
        self, value: Any, count: int, may_be_empty: bool | BoolArray = False
    ) -> Array:
        """The masks of B = `count` states, (B, A), as `read` gives them."""
        if isinstance(value, Mapping):
            value = drop_flags(value)
        is_in_parts = isinstance(value, Mapping) and _has_tuple(self._action_space)
        if is_in_parts or _has_objects(value):
            # Gymnasium makes objects, or arrays with one more axis, of lists in infos
            rows = [self._joined(_row_of(value, index)) for index in range(count)]
            value = np.stack(rows)
        masks = self.read(value, may_be_empty)
        if masks.shape != (count, self.num_values):
            raise self._fault(
                f"has the shape {masks.shape}, and {count} states have "
                f"{self.num_values} values each"
            )
        return masks

    def read(self, value: Any, may_be_empty: bool | BoolArray = False) -> Array:
        """One mask (A,), A over all components, or a batch (B, A), as uint8. Raises
        MaskError for another shape and for other numbers. Also if no value of a
        component is allowed, except where it `may_be_empty`."""
        mask = self._joined(value)
        if mask.shape[-1:] != (self.num_values,):
            fault = (
                f"has the shape {mask.shape}, and actions have {self.num_values} values"
            )
            if _counts_combinations(mask.shape, self._action_space):
                fault += "; a mask of combinations must be a part of the observation"
            raise self._fault(fault)
        is_mask = mask.dtype.kind in NUMERIC and ((mask == 0) | (mask == 1)).all()
        if not is_mask:
            raise self._fault(f"is {mask.tolist()!r:.60}; it may have 0 and 1 alone")
        has_choice = self._has_choice(mask)
        if has_choice.all():
            return mask.astype(np.uint8)
        missing = ~has_choice & ~np.asarray(may_be_empty)[..., None]
        if missing.any():
            where = ""
            if len(self.sizes) > 1:
                component = int(missing.argmax()) % len(self.sizes)
                where = f" of component {component}"
            raise self._fault(
                f"allows no action{where}, and the episode goes on; let the "
                "environment allow one, or end the episode"
            )
        return mask.astype(np.uint8)

    def sample(self, mask: Array) -> Any:
        """A random action for the environment that a mask (A,) allows, drawn by the
        generator of the action space."""
        space = self._action_space
        if self._is_joint:
            choice = space.np_random.choice(mask.nonzero()[0])
            assert isinstance(space, spaces.MultiDiscrete)
            return np.array(np.unravel_index(choice, space.nvec), space.dtype)
        components = np.split(mask.astype(np.int8), self._starts[1:])
        return space.sample(_mask_for_gymnasium(space, iter(components)))

    def allows_nothing(self, mask: Array) -> BoolArray:
        """Whether a mask (…, A) leaves a component without a value. Such a state is
        terminal, even where the time limit ended the episode."""
        return np.asarray(~self._has_choice(mask).all(-1))

    def _has_choice(self, mask: Array) -> BoolArray:
        """Whether it allows a value of each component, (…, C)."""
        has_choice: BoolArray = np.logical_or.reduceat(mask != 0, self._starts, -1)
        return has_choice

    def _joined(self, value: Any) -> Array:
        if self._is_nested(value):
            parts = self._choice_masks(self._action_space, value, ())
            return np.concatenate(list(parts), -1)
        if isinstance(value, Mapping):
            value = list(value.values())
        try:
            if _has_components(value, self.sizes):
                return np.concatenate([np.asarray(part) for part in value], -1)
            mask = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise self._fault(f"is no array: {error}") from None
        return _with_one_axis(mask, self.num_values)

    def _is_nested(self, value: Any) -> bool:
        """Whether it has parts as the action has, and not the numbers of all in one."""
        if not isinstance(self._action_space, COMPOSITE):
            return False
        if not isinstance(value, Sequence):
            return isinstance(value, Mapping)
        is_array = _has_components(value, self.sizes) or _ends_with(
            value, self.num_values
        )
        return any(map(_has_axes, value)) and not is_array

    def _choice_masks(
        self, space: AnySpace, value: Any, path: tuple[str, ...]
    ) -> Iterator[Array]:
        """The masks of all choices in actions of `space`, in order, (…, n) each."""
        sizes = action_sizes(space)
        if sizes is None:
            return
        if isinstance(space, COMPOSITE):
            for key, part in self._masked_parts(space, value, path):
                yield from self._choice_masks(*part, (*path, key))
            return
        values = int(sizes.sum())
        if _has_components(value, sizes.tolist()):
            value = np.concatenate([np.asarray(part) for part in value], -1)
        mask = _with_one_axis(np.asarray(value), values)
        if mask.shape[-1:] != (values,):
            raise self._fault(
                f'has the shape {mask.shape} in the part "{name_of_part(path)}", which '
                f"has {values} values"
            )
        yield mask

    def _masked_parts(
        self, space: AnySpace, value: Any, path: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[AnySpace, Any]]]:
        """The parts of `space` that have choices, by name, each with its mask."""
        where = ""
        if path:
            where = f' in the part "{name_of_part(path)}"'
        if isinstance(space, spaces.Dict):
            keys = [key for key, part in space.items() if has_choices(part)]
            missing = keys
            if isinstance(value, Mapping):
                missing = [key for key in keys if key not in value]
            if missing:
                names = ", ".join(map(str, missing))
                raise self._fault(
                    f"has no {names}{where}; give ones where all values are allowed"
                )
            for key in keys:
                yield str(key), (space[key], value[key])
            return
        assert isinstance(space, spaces.Tuple)
        parts = space.spaces
        choices = [k for k, part in enumerate(parts) if has_choices(part)]
        is_listed = isinstance(value, Sequence) or np.ndim(value) > 1
        length = len(value) if is_listed else 0
        if length == len(parts):
            value = [value[k] for k in choices]
        elif length != len(choices):
            raise self._fault(
                f"has the length {length}{where}, and {len(choices)} of {len(parts)} "
                "parts of the action are choices"
            )
        for k, mask in zip(choices, value, strict=True):
            yield str(k), (parts[k], mask)

    def _fault(self, fault: str) -> MaskError:
        return MaskError(self.place, f"the mask of {self._env_name} {fault}")


def action_sizes(space: AnySpace) -> IntArray | None:
    """The number of values of each component of an action that is a choice, in the
    order of the parts. None if no component is a choice."""
    sizes: list[IntArray] = []
    for _, part in parts_of(space):
        if isinstance(part, spaces.Discrete):
            sizes.append(np.array([part.n], np.int64))
        elif isinstance(part, spaces.MultiDiscrete):
            sizes.append(part.nvec.ravel().astype(np.int64))
    if not sizes:
        return None
    return np.concatenate(sizes)


def _counts_combinations(shape: Sequence[int] | None, action: AnySpace) -> bool:
    """Whether a mask of this shape has a number for each combination of an action's
    components."""
    if not isinstance(action, spaces.MultiDiscrete) or len(action.shape) != 1:
        return False
    sizes = tuple(action.nvec.tolist())
    return shape == sizes and sum(sizes) != math.prod(sizes)


def _mask_for_gymnasium(space: AnySpace, components: Iterator[Array]) -> Any:
    """The next masks of components as `space.sample` takes them; None for a part
    without a choice."""
    if isinstance(space, spaces.Dict):
        return {
            key: _mask_for_gymnasium(part, components) for key, part in space.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(_mask_for_gymnasium(part, components) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return next(components)
    if isinstance(space, spaces.MultiDiscrete):
        return _as_nested(space.nvec, components)
    return None


def _as_nested(sizes: IntArray, components: Iterator[Array]) -> Any:
    """A component of a MultiDiscrete action for each of `sizes`, in tuples of its
    axes."""
    if sizes.ndim == 0:
        return next(components)
    return tuple(_as_nested(part, components) for part in sizes)


def _has_tuple(space: AnySpace) -> bool:
    """Whether a part of an action, at any depth, is a Tuple."""
    if isinstance(space, spaces.Dict):
        return any(map(_has_tuple, space.spaces.values()))
    return isinstance(space, spaces.Tuple)


def _has_objects(value: Any) -> bool:
    """Whether a batch has, in any part, an object for each row instead of numbers."""
    if isinstance(value, Mapping):
        return any(map(_has_objects, value.values()))
    return isinstance(value, np.ndarray) and value.dtype == np.object_


def _row_of(value: Any, index: int) -> Any:
    """A row of a batch with parts."""
    if isinstance(value, Mapping):
        return {key: _row_of(part, index) for key, part in value.items()}
    return value[index]


def _with_one_axis(mask: Array, num_values: int) -> Array:
    """A mask with one axis for its values, after the axes of a batch. Before, it may
    have an axis for each component of the action. Another shape stays."""
    for axis in reversed(range(mask.ndim)):
        if math.prod(mask.shape[axis:]) == num_values:
            return mask.reshape(*mask.shape[:axis], num_values)
    return mask


def _is_marked_missing(info: Any, key: Any) -> bool:
    """Whether an info of Gymnasium's vector environments has a row without this key.
    "_KEY" marks the rows that have a KEY."""
    marks = info.get(f"_{key}") if isinstance(info, Mapping) else None
    return isinstance(marks, np.ndarray) and not marks.all()


def drop_flags(info: Mapping[str, Any]) -> dict[str, Any]:
    """An info of Gymnasium's vector environments without the marks "_KEY" of the rows
    that have its KEY."""
    return {
        key: value
        for key, value in info.items()
        if not (str(key).startswith("_") and str(key)[1:] in info)
    }


def _has_components(value: Any, sizes: Sequence[int]) -> bool:
    """Whether it is one array for each of several components."""
    if not isinstance(value, Sequence) or len(value) < 2:
        return False
    try:
        lengths = [np.shape(part)[-1:] for part in value]
    except ValueError:  # lists of different lengths
        return False
    return lengths == [(size,) for size in sizes]


def _ends_with(value: Any, length: int) -> bool:
    """Whether it is an array whose last axis has this length."""
    try:
        return np.shape(value)[-1:] == (length,)
    except ValueError:  # lists of different lengths
        return False


def _has_axes(part: Any) -> bool:
    return isinstance(part, Sequence | Mapping) or np.ndim(part) > 0


def has_choices(space: AnySpace) -> bool:
    """Whether an action of `space` has a component that is a choice."""
    return action_sizes(space) is not None


class ActionMasks(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds the mask to every observation, as its part `MASK`."""

    def __init__(self, env: Env, reader: MaskReader) -> None:
        RecordConstructorArgs.__init__(self, reader=reader)
        super().__init__(env)
        self.reader = reader
        self.observation_space = reader.space

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._masked(obs, info, "reset"), info

    @override
    def step(
        self, action: Any
    ) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        # no action follows the last state of an episode
        is_over = bool(terminated) or bool(truncated)
        masked = self._masked(obs, info, "step", may_be_empty=is_over)
        if is_over and not terminated:
            terminated = bool(self.reader.allows_nothing(masked[MASK]))
        return masked, reward, terminated, truncated, info

    def _masked(
        self,
        obs: Any,
        info: Mapping[str, Any],
        method: str,
        may_be_empty: bool = False,
    ) -> dict[str, Any]:
        value = self.reader.find(obs, info, method)
        mask = self.reader.read(value, may_be_empty)
        return {**self.reader.parts(obs), MASK: mask}
