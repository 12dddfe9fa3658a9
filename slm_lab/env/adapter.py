"""Between an environment's own observations and actions, and a policy's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from gymnasium import spaces

from slm_lab.core.types import Array, BoolArray, FloatArray
from slm_lab.env.convert.flatten import COMPOSITE, FlatObservation, fault_of, flatten, parts_of
from slm_lab.env.interface import AnySpace, Env
from slm_lab.env.make import make_one
from slm_lab.spec.schema.env import EnvSpec


class Batch(NamedTuple):
    """Observations as the environments give them, but flat if they have parts."""

    obs: Array
    """(B, ...)"""
    is_single: bool
    """Whether it was one observation; B is 1 then."""


@final
class PolicyAdapter:
    """Converts the observations and actions of environments that someone else steps.
    `observation_space` and `action_space` are the policy's; `env_observation_space` and
    `env_action_space` those of `make_env`."""

    def __init__(self, spec: EnvSpec) -> None:
        """Raises as `env.make.make_env`."""
        self._spec = spec
        env, conversions = make_one(spec)
        self._parts: AnySpace | None = env.parts if isinstance(env, FlatObservation) else None
        self.flat_space: AnySpace = env.observation_space
        """The space of one row of a `Batch`."""
        self.env_observation_space: AnySpace = self._parts or self.flat_space
        self.env_action_space: AnySpace = env.action_space
        env.close()
        self.conversions = conversions
        """What is between the two."""
        self.observation_space = conversions.observation_space
        self.action_space = conversions.action.space
        self.statistics: FloatArray = conversions.statistics
        """The normalisers' running statistics, see `VectorEnv.statistics`."""
        self._joined: Array | None = None

    @property
    def joins_frames(self) -> bool:
        """Whether an observation of the policy contains earlier frames of the episode."""
        return self.conversions.joiner is not None

    def make_env(self) -> Env:
        """One environment as the spec makes it: its arguments, time limit and game settings. It has
        its own observations, actions and rewards: the adapter converts them."""
        env, _ = make_one(self._spec)
        return env.env if isinstance(env, FlatObservation) else env

    def batch(self, obs: Any) -> Batch:
        """One observation of `env_observation_space`, or a batch of them. A batch has one more axis
        in front; of a Dict or Tuple, each part has it. Raises ValueError if `obs` is neither."""
        if self._parts is not None:
            return self._flat_batch(self._parts, obs)
        shape = self.flat_space.shape or ()
        try:
            array = np.asarray(obs)
        except ValueError:
            raise ValueError(
                f"the observation is no array; one observation of {self._spec.name} has the shape "
                f"{shape} (reset and step return more than the observation)"
            ) from None
        if array.shape == shape:
            return Batch(array[None], True)
        if array.shape[1:] == shape and array.ndim == len(shape) + 1 and len(array):
            return Batch(array, False)
        raise ValueError(
            f"the observation has the shape {array.shape}; one observation of "
            f"{self._spec.name} has {shape}, a batch of B has {('B', *shape)}".replace("'B'", "B")
        )

    def _flat_batch(self, parts: AnySpace, obs: Any) -> Batch:
        is_single = fault_of(parts, obs) is None and not _has_batch_axis(parts, obs)
        rows = [obs] if is_single else _rows(parts, obs)
        faults = [fault_of(parts, row) for row in rows] or [fault_of(parts, obs)]
        if any(faults) or not rows:
            why = next(filter(None, faults), "its parts have no common first axis")
            raise ValueError(f"this is no observation of {self._spec.name}, and no batch: {why}")
        return Batch(np.stack([flatten(parts, row) for row in rows]), is_single)

    def policy_obs(self, obs: Array, starts: BoolArray) -> Array:
        """Observations (B, ...) of a `Batch` as the policy takes them; `starts` (B,) marks those
        that begin an episode."""
        conversions = self.conversions
        frames = conversions.observation.convert(obs)
        if conversions.normalizer is not None:
            frames = conversions.normalizer.normalize(frames)
        joiner = conversions.joiner
        if joiner is None:
            return frames
        if self._joined is None or starts.all():
            self._joined = joiner.begin(frames)
        else:
            over = np.flatnonzero(starts)
            _, self._joined = joiner.follow_and_begin(self._joined, frames, frames, over)
        return self._joined

    def env_action(self, action: Array) -> Array:
        """The policy's actions (B, ...) as environments take them, (B, *shape of an action)."""
        return self.conversions.action.convert(action)


def _rows(parts: AnySpace, obs: Any) -> Sequence[Any]:
    """The single observations of a batch of `parts`; none if it is no batch."""
    if not isinstance(parts, COMPOSITE):
        array = np.asarray(obs)
        return list(array) if array.ndim else []
    inner = parts_of(parts)
    if isinstance(parts, spaces.Tuple) and isinstance(obs, Sequence):
        obs = dict(enumerate(obs))
    if not isinstance(obs, Mapping) or obs.keys() != inner.keys():
        return []
    columns = [_rows(part, obs[key]) for key, part in inner.items()]
    if len(set(map(len, columns))) != 1:
        return []
    rows = [dict(zip(inner, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows if isinstance(parts, spaces.Dict) else [tuple(row.values()) for row in rows]


def _has_batch_axis(parts: AnySpace, obs: Any) -> bool:
    """Whether the first innermost part of `obs` has one axis more than its space."""
    if isinstance(parts, COMPOSITE):
        key, part = next(iter(parts_of(parts).items()))
        return _has_batch_axis(part, obs[key])
    return np.ndim(obs) == len(parts.shape or ()) + 1
