"""Converts between an environment's own observations and actions, and a policy's."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from gymnasium import spaces

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, BoolArray, FloatArray
from slm_lab.env.convert.mask import MASK, ActionMasks, MaskReader
from slm_lab.env.convert.nested import name_of_part
from slm_lab.env.convert.parts import (
    ObservationRows,
    RowConverter,
    as_array,
    as_numbers,
    bare_env,
    leaves,
)
from slm_lab.env.failure import close_all
from slm_lab.env.interface import AnySpace, Env, obs_name
from slm_lab.env.make import make_one
from slm_lab.spec.schema.env import EnvSpec


class Batch(NamedTuple):
    """Observations as the environments give them, but rows if they have parts."""

    obs: Array
    """(B, ...)"""
    is_single: bool
    """Whether it was one observation; B is 1 then."""
    parts: Mapping[str, Array]
    """The parts by name, (B, ...) each, as the environments give them"""


@final
class PolicyAdapter:
    """Converts the observations and actions of environments that someone else steps.
    `layout` and `action_space` are the policy's; `env_observation_space` and
    `env_action_space` are the spaces of `make_env`."""

    def __init__(self, spec: EnvSpec, needed: Collection[str] | None = None) -> None:
        """`needed` are the parts of an observation that the policy sees; None: all.
        Other parts may be missing, or have None in their place. Raises the errors of
        `env.make.make_env`."""
        self._spec = spec
        self._needed = needed
        env, conversions = make_one(spec)
        bare = bare_env(env)
        rows: RowConverter | None = None
        self.masks: MaskReader | None = None
        """Reads masks of actions; None without them."""
        if isinstance(env, ObservationRows):
            rows = env.converter
            if isinstance(env.env, ActionMasks):
                self.masks = env.env.reader
        self.row_space: AnySpace = env.observation_space
        """The space of one row of a `Batch`."""
        self.env_observation_space = bare.observation_space
        self.env_action_space: AnySpace = env.action_space
        close_all([env.close], spec.name)
        self.rows = rows
        """What makes rows of observations with parts; None for others."""
        self.conversions = conversions
        self.layout = conversions.layout
        self.action_space = conversions.action.space
        self.statistics: FloatArray = conversions.statistics
        self.joined: Array | None = None
        """The joined frames of the running episodes; None before the first."""

    def make_env(self, **kwargs: Any) -> Env:
        """One environment as the spec makes it: its arguments and `kwargs`, time limit
        and game settings. It has its own observations, actions and rewards: the adapter
        converts them."""
        env, _ = make_one(self._spec.with_arguments(kwargs))
        return bare_env(env)

    def batch(self, obs: Any, mask: Any = None) -> Batch:
        """One observation of `env_observation_space`, or a batch of them, with its mask
        if that is no part of it. A batch has one more axis in front; of a Dict or
        Tuple, each part has it. Raises ValueError if `obs` or `mask` is neither."""
        space = self.env_observation_space
        if self.masks is not None:
            space = self.masks.space
            obs = self._with_mask(self.masks, obs, mask)
        elif mask is not None:
            raise ValueError(f"{self._spec.name} has no masks: env.action_mask is null")
        try:
            values = leaves(*self._readable(space, obs))
            parts = [
                (path, part, as_array(value, path)) for path, part, value in values
            ]
            axes = {array.ndim - len(part.shape or ()) for _, part, array in parts}
            if axes == {0, 1} and mask is not None:
                _check_one_mask_each(parts)
            lead = parts[0][-1].shape[:1] if axes == {1} else ()
            named = {name_of_part(part[0]): _rows(*part, lead) for part in parts}
            joined = first = next(iter(named.values()))
            if self.rows is not None:
                joined = self.rows.rows(named, len(first))
        except ValueError as error:
            why = ""
            if isinstance(obs, tuple):
                why = " (reset and step return more than it)"
            env = self._spec.name
            raise ValueError(
                f"no observation of {env}, and no batch: {error}{why}"
            ) from None
        return Batch(joined, not lead, named)

    def _readable(
        self, space: AnySpace, obs: Any, path: tuple[str, ...] = ()
    ) -> tuple[AnySpace, Any]:
        """Space and observation at `path` without parts that are not needed, and are
        missing or None in `obs`."""
        if self._needed is None:
            return space, obs
        if isinstance(space, spaces.Dict) and isinstance(obs, Mapping):
            values = dict(obs)
            parts = space.spaces
        elif (
            isinstance(space, spaces.Tuple)
            and isinstance(obs, tuple | list)
            and len(obs) == len(space.spaces)
        ):
            values = {str(index): value for index, value in enumerate(obs)}
            parts = {str(index): part for index, part in enumerate(space.spaces)}
        else:
            return space, obs
        readable = {}
        for key, part in parts.items():
            of_part = (*path, str(key))
            if values.get(key) is not None:
                readable[key], values[key] = self._readable(part, values[key], of_part)
            elif self._is_needed(of_part):
                readable[key] = part
            else:
                values.pop(key, None)
        return spaces.Dict(readable), values

    def _is_needed(self, path: tuple[str, ...]) -> bool:
        """Whether the policy sees the part at `path`, or one in it."""
        within = f"{name_of_part(path)}."
        seen = (*(self._needed or ()), MASK)
        return any(f"{name}.".startswith(within) for name in seen)

    def _with_mask(self, reader: MaskReader, obs: Any, mask: Any) -> dict[str, Any]:
        try:
            if mask is None and not reader.is_in_info:
                mask = reader.find(obs, {}, "act")
            if mask is None:
                keys = "".join(f"[{key!r}]" for key in reader.key.split("."))
                raise ValueError(f"a mask is missing: give it as mask=info{keys}")
            return {**reader.parts(obs), MASK: reader.read(mask)}
        except LabError as error:
            raise ValueError(str(error)) from None

    def mask_in(self, info: Mapping[str, Any]) -> Any:
        """The mask in an info, if it is there and not in the observation; else None."""
        if self.masks is None or not self.masks.is_in_info:
            return None
        return self.masks.find(None, info, "step")

    def policy_obs(self, obs: Array, starts: BoolArray) -> Array:
        """Observations (B, ...) of a `Batch` as the policy takes them; `starts` (B,)
        marks the first one of an episode."""
        conversions = self.conversions
        frames = conversions.observation.convert(obs)
        if conversions.normalizer is not None:
            frames = conversions.normalizer.normalize(frames)
        joiner = conversions.joiner
        if joiner is None:
            return frames
        if self.joined is None or starts.all():
            self.joined = joiner.begin(frames)
        else:
            over = np.flatnonzero(starts)
            _, self.joined = joiner.follow_and_begin(self.joined, frames, frames, over)
        return self.joined


def _check_one_mask_each(parts: Sequence[tuple[Any, AnySpace, Array]]) -> None:
    """Raises ValueError for a batch of observations with a single mask, or the
    reverse."""
    is_batch = {
        path == (MASK,): array.ndim > len(part.shape or ())
        for path, part, array in parts
    }
    if is_batch[True] != is_batch[False]:
        count = "many masks and one observation"
        if is_batch[False]:
            count = "many observations and one mask"
        raise ValueError(f"there are {count}; a batch has a mask for each observation")


def _rows(
    path: tuple[str, ...], space: AnySpace, array: Array, lead: tuple[int, ...]
) -> Array:
    """The part at `path` as (B, *shape). `lead` is (B,) for a batch, and () for one
    observation. Raises ValueError if `array` has another shape."""
    shape = space.shape or ()
    fits = array.shape == (*lead, *shape)
    # an axis of length 1 more or less works in training, too
    if not fits and path and not lead:
        fits = [n for n in array.shape if n != 1] == [n for n in shape if n != 1]
    if not fits or array.size == 0:
        batch = str((*(lead if array.size and lead else ("B",)), *shape)).replace(
            "'", ""
        )
        actual = f"{obs_name(path)} has the shape {array.shape}"
        raise ValueError(f"{actual}; one has {shape}, a batch {batch}")
    rows = as_numbers(array, space, path).reshape(-1, *shape)
    if rows.dtype.kind == "f":
        with np.errstate(over="ignore"):
            is_usable = np.isfinite(rows.astype(np.float32))
        if not is_usable.all():
            value = rows[~is_usable][0]
            raise ValueError(
                f"{obs_name(path)} has the value {value}, which is no finite float32"
            )
    return rows
