"""Converts an agent's actions to an environment's. Only this module scales actions."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.actions import LARGEST_INDEX, MixedActions
from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.types import Array, FloatArray, IntArray
from slm_lab.env.convert.mask import action_sizes
from slm_lab.env.convert.nested import COMPOSITE, name_of_part, nested, parts_of


class Scaling(NamedTuple):
    """a → clip(a · half_width + middle, low, high), each (A,) float64."""

    half_width: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray


class Joint(NamedTuple):
    """a → a // strides % sizes, the values of the K components, each (K,) int64."""

    strides: IntArray
    sizes: IntArray

    @classmethod
    def of(cls, sizes: IntArray) -> "Joint":
        """The joint action of components with these numbers of values."""
        strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
        return cls(strides.copy(), sizes)


@final
class ActionConverter:
    """Scales bounded components of a Box from [-1, 1]; counts discrete actions from 0.
    A component with two finite bounds becomes low + (a + 1)/2 (high − low); others are
    unchanged. All are clipped to existing bounds. The agent's actions of several
    components are vectors (A,). With `is_joint`, for a MultiDiscrete, an action is one
    number for a combination of their values. The last component changes first."""

    space: Space[Any]
    """The agent's action space, of one environment."""

    def __init__(
        self,
        raw_space: Space[Any],
        env_name: str,
        part: str = "",
        is_joint: bool = False,
    ) -> None:
        """Raises SpecError for a space that is not supported, with the name of the
        `part` of actions that it is."""
        self.scaling: Scaling | None = None
        """The scaling of a Box; None for other spaces."""
        self.start: Array | None = None
        """The first discrete action; None: 0."""
        self.joint: Joint | None = None
        """Splits the number of a combination into the components' values. None: actions
        are no such numbers."""
        if isinstance(raw_space, spaces.Box) and np.issubdtype(
            raw_space.dtype, np.floating
        ):
            self.scaling = self._scale_from(raw_space)
        elif isinstance(raw_space, spaces.Discrete):
            self.start = _unless_zero(np.asarray(raw_space.start))
            self.space = spaces.Discrete(int(raw_space.n))
        elif isinstance(raw_space, spaces.MultiDiscrete):
            self.start = _unless_zero(raw_space.start.ravel())
            sizes = raw_space.nvec.ravel().astype(np.int64)
            self.space = spaces.MultiDiscrete(sizes)
            if is_joint:
                self.joint = Joint.of(sizes)
                self.space = spaces.Discrete(int(sizes.prod()))
        elif isinstance(raw_space, spaces.MultiBinary):
            self.space = spaces.MultiBinary(math.prod(raw_space.shape))
        else:
            raise SpecError("env", [_unsupported(raw_space, env_name, part)])
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
        if self.joint is not None:
            action = action[:, None] // self.joint.strides % self.joint.sizes
        if self.scaling is not None:
            action = _scaled(action, self.scaling)
        elif self.start is not None:
            action = action + self.start
        if action.shape[1:] != self.shape:
            action = action.reshape(len(action), *self.shape)
        return action.astype(self.dtype, copy=False)


@final
class MixedConverter:
    """Converts rows (K,) of actions with several parts. Each part is converted as an
    action of its own."""

    def __init__(self, raw_space: Space[Any], env_name: str) -> None:
        """Raises SpecError for every part that is not supported."""
        self._raw_space = raw_space
        self.parts: dict[str, ActionConverter] = {}
        """The converter of each innermost part, by its name."""
        problems: list[Problem] = []
        for path, part in parts_of(raw_space):
            name = name_of_part(path)
            try:
                self.parts[name] = ActionConverter(part, env_name, name)
            except SpecError as error:
                problems += error.problems
                continue
            problems += _row_problems(part, env_name, name)
        if problems:
            raise SpecError("env", problems)
        self.space = MixedActions([part.space for part in self.parts.values()])
        """The agent's action space, of one environment."""

    def convert(self, action: Array) -> Any:
        """Rows (N, K) → actions of the N environments. They are dicts and tuples as in
        the raw space, with an array (N, …) for each part."""
        parts = zip(self.parts.values(), self.space.columns, strict=True)
        arrays = [
            part.convert(_typed(action[:, columns], part)) for part, columns in parts
        ]
        return nested(self._raw_space, iter(arrays))


AnyActionConverter: TypeAlias = ActionConverter | MixedConverter


def action_converter(
    raw_space: Space[Any], env_name: str, mask_sizes: Sequence[int] = ()
) -> AnyActionConverter:
    """The converter for this space of an environment. `mask_sizes` are the `sizes` of a
    `MaskReader`, none without a mask. Raises SpecError for a space that is not
    supported."""
    if isinstance(raw_space, COMPOSITE) and raw_space.spaces:
        return MixedConverter(raw_space, env_name)
    is_joint = False
    if mask_sizes and isinstance(raw_space, spaces.MultiDiscrete):
        is_joint = tuple(mask_sizes) != tuple(raw_space.nvec.ravel())
    return ActionConverter(raw_space, env_name, is_joint=is_joint)


def _typed(columns: Array, part: ActionConverter) -> Array:
    """Columns (N, A) of a part in the type of the agent's space for it. An index is a
    whole number."""
    assert part.space.dtype is not None
    return columns.astype(part.space.dtype)


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


def _unsupported(space: Space[Any], env_name: str, part: str) -> Problem:
    kind = f"{type(space).__name__} space"
    if isinstance(space, spaces.Box):
        kind = f"Box of {space.dtype} space"
    if isinstance(space, COMPOSITE):
        kind = f"{kind} without parts"
    subject = "its actions are"
    if part:
        subject = f'the part "{part}" of its actions is'
    return Problem(
        "env.name",
        f"{subject} a {kind}, which is not supported; supported are Box of floats, "
        "Discrete, MultiDiscrete, MultiBinary, and Tuple or Dict of these; wrap the "
        "environment so that it takes one of these",
        env_name,
    )


def _row_problems(space: Space[Any], env_name: str, part: str) -> list[Problem]:
    """The problem of a part that has no numbers in a row of float32, or numbers too
    large for it."""
    fault = ""
    if math.prod(space.shape or ()) == 0:
        fault = "has no numbers; leave it out"
    sizes = action_sizes(space)
    if sizes is not None and sizes.max() > LARGEST_INDEX:
        fault = (
            f"has {sizes.max():,} values, and an agent chooses among at most "
            f"{LARGEST_INDEX:,}; choose among fewer"
        )
    if not fault:
        return []
    message = f'the part "{part}" of its actions {fault}, in a wrapper'
    return [Problem("env.name", message, env_name)]
