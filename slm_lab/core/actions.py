"""Actions with several parts, as agents choose them: one row of numbers each. And
random actions of all spaces."""

import math
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from typing_extensions import override

from slm_lab.core.masks import draw_allowed
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray

LARGEST_INDEX = 2**24
"""Float32 holds all whole numbers up to it."""


@final
class MixedActions(spaces.Space[FloatArray]):
    """The space of rows (K,) of float32 with the columns of all parts side by side. A
    part is Discrete or MultiDiscrete from 0, MultiBinary, or a Box of shape (A,). An
    index is a whole number."""

    def __init__(self, parts: Sequence[gymnasium.Space[Any]]) -> None:
        self.parts = tuple(parts)
        widths = [math.prod(part.shape or ()) for part in parts]
        ends = np.cumsum(widths).tolist()
        self.columns: tuple[slice, ...] = tuple(
            slice(end - width, end) for end, width in zip(ends, widths, strict=True)
        )
        """The columns of each part."""
        super().__init__((sum(widths),), np.float32)
        sizes = [_sizes(part) for part in parts]
        self.sizes: IntArray = np.concatenate(sizes)
        """(K,) the number of values of each index; 0 for other numbers"""
        is_choice = [
            np.full(width, isinstance(part, spaces.Discrete | spaces.MultiDiscrete))
            for part, width in zip(parts, widths, strict=True)
        ]
        self.choices: IntArray = np.concatenate(is_choice).nonzero()[0]
        """The columns that Discrete and MultiDiscrete parts have."""
        bounds = [_bounds(part, size) for part, size in zip(parts, sizes, strict=True)]
        self.low: FloatArray = np.concatenate([low for low, _ in bounds])
        """(K,) float64, the lower bounds; `high` has the upper ones"""
        self.high: FloatArray = np.concatenate([high for _, high in bounds])

    @property
    @override
    def is_np_flattenable(self) -> bool:
        return True

    def draw(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Random rows (count, K): uniform between two bounds, exponential beyond a
        single one, else normal."""
        shape = (count, len(self.sizes))
        has_low: BoolArray = np.isfinite(self.low)
        has_high: BoolArray = np.isfinite(self.high)
        # indices 0, 1, …, n − 1 share [0, n) alike
        is_index = self.sizes > 0
        width = np.where(is_index, self.sizes, self.high - self.low)
        width = np.where(has_low & has_high, width, 0.0)
        low = np.where(has_low, self.low, 0.0)
        rows = low + generator.random(shape) * width
        rows = np.where(is_index, np.floor(rows), rows)
        if not (has_low & has_high).all():
            beyond = generator.exponential(size=shape)
            rows = np.where(has_low & ~has_high, low + beyond, rows)
            rows = np.where(has_high & ~has_low, self.high - beyond, rows)
            free = generator.standard_normal(shape)
            rows = np.where(has_low | has_high, rows, free)
        return rows.astype(np.float32)

    @override
    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Any:
        """One row (K,), as `draw` draws it; neither argument changes it."""
        return self.draw(self.np_random, 1)[0]

    @override
    def contains(self, x: Any) -> bool:
        """Whether `x` is a row of float32 between the bounds, its indices whole."""
        row = np.asarray(x)
        if row.shape != self.shape or row.dtype != self.dtype:
            return False
        is_inside = (row >= self.low) & (row <= self.high)
        is_whole = (self.sizes == 0) | (row == np.floor(row))
        return bool((is_inside & is_whole).all())

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, MixedActions) and self.parts == other.parts

    @override
    def __hash__(self) -> int:
        return hash(str(self))

    @override
    def __repr__(self) -> str:
        return f"MixedActions({', '.join(map(str, self.parts))})"


def _sizes(part: gymnasium.Space[Any]) -> IntArray:
    """(A,) the number of values of each index of a part; 0 for other numbers."""
    if isinstance(part, spaces.Discrete):
        return np.array([part.n], np.int64)
    if isinstance(part, spaces.MultiDiscrete):
        return part.nvec.ravel().astype(np.int64)
    width = math.prod(part.shape or ())
    if isinstance(part, spaces.MultiBinary):
        return np.full(width, 2, np.int64)
    return np.zeros(width, np.int64)


def _bounds(
    part: gymnasium.Space[Any], sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The least and the greatest values of a part, (A,) each."""
    if isinstance(part, spaces.Box):
        return part.low.ravel().astype(np.float64), part.high.ravel().astype(np.float64)
    return np.zeros(len(sizes)), sizes - 1.0


@final
class RandomActions:
    """Random actions of an agent for N environments: uniform between two bounds, with a
    mask among those that it allows."""

    def __init__(
        self,
        space: gymnasium.Space[Any],
        num_envs: int,
        seed: int,
        layout: ObservationLayout,
    ) -> None:
        self._space = space
        self._layout = layout
        self.generator = np.random.default_rng(seed)
        """The generator of the draws."""
        if not isinstance(space, MixedActions):
            self._batched = batch_space(space, num_envs)
            self._batched.seed(seed)
            self.generator = self._batched.np_random

    def draw(self, obs: Array) -> Array:
        """Actions (N, ...) for observations (N, D)."""
        allowed = draw_allowed(self._layout, obs, self.generator)
        if isinstance(self._space, MixedActions):
            rows = self._space.draw(self.generator, len(obs))
            if allowed is not None:
                rows[:, self._space.choices] = allowed
            return rows
        if allowed is None:
            return np.asarray(self._batched.sample())
        return allowed.reshape(len(obs), *(self._space.shape or ()))
