"""Which actions an environment allows now, as a part of its observations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.types import Array, IntArray
from slm_lab.env.convert.nested import COMPOSITE, name_of_part, parts_of
from slm_lab.env.interface import NUMERIC, AnySpace, Env

OBS = "obs"
"""The part with the observation of an environment whose mask comes apart from it."""

MASK = "action_mask"
"""The part with the mask."""

INFO = "info."
"""The prefix of a mask in the info of `reset` and `step`."""


class MaskReader:
    """Reads the mask at `place`: "info.KEY", or a key of the observation. A mask has a
    number for each value of each Discrete component of an action: 1 where it is
    allowed, 0 where not. It is one array, or one array per component in a list, Tuple
    or Dict. The mask of an action in parts may have the same parts. Raises SpecError if
    actions have no such component, or the observation no such key."""

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
        self._env_name = env_name
        self._action_space = action_space
        sizes = action_sizes(action_space)
        if sizes is None:
            message = (
                f"masks are for Discrete and MultiDiscrete actions, and the "
                f"environment's are {action_space}; remove it"
            )
            raise SpecError.of("env", "env.action_mask", message, place)
        self.sizes: tuple[int, ...] = tuple(sizes.tolist())
        """The values of each component of an action."""
        self.num_values = sum(self.sizes)
        """A, the values of all components."""
        self._starts = np.cumsum(sizes) - sizes
        self._has_parts = isinstance(observation_space, spaces.Dict)
        self.others = self._others(observation_space)
        """The parts beside the mask."""
        mask = spaces.MultiBinary(self.num_values)
        self.space = spaces.Dict({**self.others, MASK: mask})
        """Observations with the mask as their part `MASK`."""

    def _others(self, space: AnySpace) -> dict[str, AnySpace]:
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBS: space}
        if not self.is_in_info:
            if not isinstance(space, spaces.Dict) or self.key not in parts:
                keys = ", ".join(map(str, parts)) if len(parts) > 1 else "no parts"
                message = (
                    f'the observation has no part "{self.key}"; it has {keys}; a mask '
                    'in the info is "info.KEY"'
                )
                raise SpecError.of("env", "env.action_mask", message, self.place)
            del parts[self.key]
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
        if not isinstance(obs, Mapping):
            return {}
        return {key: part for key, part in obs.items() if key != self.key}

    def find(self, obs: Any, info: Mapping[str, Any], method: str) -> Any:
        """The mask of an observation, as the environment gives it. Raises LabError if
        it is missing."""
        holder = info if self.is_in_info else obs
        if isinstance(holder, Mapping) and self.key in holder:
            return holder[self.key]
        what = "info" if self.is_in_info else "observation"
        keys = ", ".join(map(str, holder)) if isinstance(holder, Mapping) else ""
        raise LabError(
            f'env.action_mask = "{self.place}": the {what} of {method}() of '
            f"{self._env_name} has no {self.key}; it has {keys or 'nothing'}"
        )

    def read(self, value: Any, may_be_empty: bool = False) -> Array:
        """One mask (A,), A over all components, or a batch (B, A), as uint8. Raises
        LabError for another shape, for other numbers, and unless it `may_be_empty` if
        no value of a component is allowed."""
        mask = self._joined(value)
        if mask.shape[-1:] != (self.num_values,):
            raise self._fault(
                f"has the shape {mask.shape}, and actions have {self.num_values} values"
            )
        is_mask = mask.dtype.kind in NUMERIC and ((mask == 0) | (mask == 1)).all()
        if not is_mask:
            raise self._fault(f"is {mask.tolist()!r:.60}; it may have 0 and 1 alone")
        allowed = np.add.reduceat(mask != 0, self._starts, -1)
        if not may_be_empty and not allowed.all():
            where = ""
            if len(self.sizes) > 1:
                component = int(allowed.argmin()) % len(self.sizes)
                where = f" of component {component}"
            raise self._fault(
                f"allows no action{where}, and the episode goes on; let the "
                "environment allow one, or end the episode"
            )
        return mask.astype(np.uint8)

    def _joined(self, value: Any) -> Array:
        if self._is_nested(value):
            parts = self._of_choices(self._action_space, value, ())
            return np.concatenate(list(parts), -1)
        if isinstance(value, Mapping):
            value = list(value.values())
        try:
            if _has_components(value, self.sizes):
                return np.concatenate([np.asarray(part) for part in value], -1)
            mask = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise self._fault(f"is no array: {error}") from None
        # one number per value, in as many axes as the action has
        return mask.ravel() if mask.size == self.num_values else mask

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

    def _of_choices(
        self, space: AnySpace, value: Any, path: tuple[str, ...]
    ) -> Iterator[Array]:
        """The masks of all choices in actions of `space`, in order, (…, n) each."""
        sizes = action_sizes(space)
        if sizes is None:
            return
        if isinstance(space, COMPOSITE):
            for key, part in self._masked_parts(space, value, path):
                yield from self._of_choices(*part, (*path, key))
            return
        values = int(sizes.sum())
        if _has_components(value, sizes.tolist()):
            value = np.concatenate([np.asarray(part) for part in value], -1)
        mask = np.asarray(value)
        if mask.size == values:
            mask = mask.ravel()
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
                raise self._fault(f"has no {', '.join(map(str, missing))}{where}")
            for key in keys:
                yield str(key), (space[key], value[key])
            return
        assert isinstance(space, spaces.Tuple)
        parts = space.spaces
        choices = [k for k, part in enumerate(parts) if has_choices(part)]
        length = len(value) if isinstance(value, Sequence) else 0
        if length == len(parts):
            value = [value[k] for k in choices]
        elif length != len(choices):
            raise self._fault(
                f"has the length {length}{where}, and {len(choices)} of {len(parts)} "
                "parts of the action are choices"
            )
        for k, mask in zip(choices, value, strict=True):
            yield str(k), (parts[k], mask)

    def _fault(self, fault: str) -> LabError:
        return LabError(
            f'env.action_mask = "{self.place}": the mask of {self._env_name} {fault}'
        )


def action_sizes(space: AnySpace) -> IntArray | None:
    """The number of values of each component of an action that is a choice, of all
    parts in order; None if none is."""
    sizes: list[IntArray] = []
    for _, part in parts_of(space):
        if isinstance(part, spaces.Discrete):
            sizes.append(np.array([part.n], np.int64))
        elif isinstance(part, spaces.MultiDiscrete):
            sizes.append(part.nvec.ravel().astype(np.int64))
    if not sizes:
        return None
    return np.concatenate(sizes)


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
        # no action follows a terminal state
        masked = self._masked(obs, info, "step", may_be_empty=bool(terminated))
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
