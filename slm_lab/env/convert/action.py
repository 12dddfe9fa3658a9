"""Converts an agent's actions to an environment's. Only this module scales actions."""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.types import Array, FloatArray


class Scaling(NamedTuple):
    """a → clip(a · half_width + middle, low, high), each (A,) float64."""

    half_width: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray


class ActionConverter:
    """Scales bounded components of a Box from [-1, 1]; counts discrete actions from 0.
    A component with two finite bounds becomes low + (a + 1)/2 (high − low); others are
    unchanged. All are clipped to existing bounds. The agent's actions of several
    components are vectors (A,)."""

    space: Space[Any]
    """The agent's action space, of one environment."""

    def __init__(self, raw_space: Space[Any], env_name: str) -> None:
        self.scaling: Scaling | None = None
        """The scaling of a Box; None for other spaces."""
        self.start: Array | None = None
        """The first discrete action; None: 0."""
        if isinstance(raw_space, spaces.Box) and np.issubdtype(
            raw_space.dtype, np.floating
        ):
            self.scaling = self._scale_from(raw_space)
        elif isinstance(raw_space, spaces.Discrete):
            self.start = _unless_zero(np.asarray(raw_space.start))
            self.space = spaces.Discrete(int(raw_space.n))
        elif isinstance(raw_space, spaces.MultiDiscrete):
            self.start = _unless_zero(raw_space.start.ravel())
            self.space = spaces.MultiDiscrete(raw_space.nvec.ravel().astype(np.int64))
        elif isinstance(raw_space, spaces.MultiBinary):
            self.space = spaces.MultiBinary(math.prod(raw_space.shape))
        else:
            raise SpecError("env", [_unsupported(raw_space, env_name)])
        self.shape: tuple[int, ...] = raw_space.shape or ()
        """The shape of one action of the environment."""
        self.dtype = raw_space.dtype

    def _scale_from(self, raw_space: spaces.Box) -> Scaling:
        low = raw_space.low.ravel().astype(np.float64)
        high = raw_space.high.ravel().astype(np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        # Finite values for unbounded components avoid inf − inf.
        finite_low = np.where(bounded, low, -1.0)
        finite_high = np.where(bounded, high, 1.0)
        self.space = spaces.Box(
            np.where(bounded, -1.0, low).astype(np.float32),
            np.where(bounded, 1.0, high).astype(np.float32),
            dtype=np.float32,
        )
        # Halves first: the difference of the largest bounds is infinite.
        middle = finite_low / 2 + finite_high / 2
        half_width = finite_high / 2 - finite_low / 2
        return Scaling(half_width, middle, low, high)

    def convert(self, action: Array) -> Array:
        """Actions (N,) or (N, A) → actions of the N environments, (N, *shape) of the
        raw dtype."""
        if self.scaling is not None:
            action = _scaled(action, self.scaling)
        elif self.start is not None:
            action = action + self.start
        if action.shape[1:] != self.shape:
            action = action.reshape(len(action), *self.shape)
        return action.astype(self.dtype, copy=False)


def _scaled(action: Array, scaling: Scaling) -> Array:
    raw = action * scaling.half_width
    raw += scaling.middle
    np.maximum(raw, scaling.low, out=raw)
    np.minimum(raw, scaling.high, out=raw)
    return raw


def _unless_zero(start: Array) -> Array | None:
    if np.any(start):
        return start
    return None


def _unsupported(space: Space[Any], env_name: str) -> Problem:
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        kind = f"{kind} of {space.dtype}"
    return Problem(
        "env.name",
        f"its actions are a {kind} space, which is not supported; supported are Box "
        "of floats, Discrete, MultiDiscrete and MultiBinary; wrap the environment so "
        "that it takes one of these",
        env_name,
    )
