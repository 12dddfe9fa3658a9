"""Observations with parts: a Dict or a Tuple becomes one row."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.errors import SpecError
from slm_lab.core.observation import (
    FLOAT32,
    ObservationLayout,
    Part,
    PartSpace,
    row_layout,
)
from slm_lab.core.types import Array
from slm_lab.env.convert.image import ImageConverter, channels_are_last, is_image
from slm_lab.env.convert.mask import MASK, ActionMasks
from slm_lab.env.convert.nested import COMPOSITE, name_of_part, parts_of
from slm_lab.env.convert.observation import (
    SUPPORTED,
    discrete_parts,
    float32_box,
    is_empty,
    unsupported,
)
from slm_lab.env.interface import (
    AnySpace,
    Env,
    breaks_its_space,
    check_numbers,
    obs_name,
    typed,
)

LARGEST_GRID = 12
"""Pixels per side up to which an image becomes numbers of a vector, such as the view of
MiniGrid. A larger one keeps its bytes and axes."""

WORTH_BYTES = 1024
"""Bytes that a row of bytes must save in an observation of several parts without
images."""

Channels = Literal["first", "last"] | None


class RowSpace(spaces.Box):
    """The space of rows with this layout."""

    def __init__(self, low: Array, high: Array, layout: ObservationLayout) -> None:
        super().__init__(low, high, dtype=low.dtype)
        self.layout = layout


@dataclass(frozen=True)
class PartConverter:
    """Writes one part of observations into rows."""

    path: tuple[str, ...]
    space: AnySpace
    """The part's space in the environment."""
    part: Part
    one_hot: bool
    """Whether its indices are one-hots in the row."""
    image: ImageConverter | None

    def write(self, view: Array, observed: Array) -> None:
        """Writes B parts, (B, *shape of the space) and of its type, into the rows.
        `view` (B, *shape of the part) is their place in these. Raises ValueError if
        float32 cannot hold a value."""
        numbers = observed
        if isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete):
            numbers = self._indices(self.space, observed)
        elif self.image is not None:
            numbers = self.image.convert(observed)
        if view.dtype.kind == "f":
            numbers = typed(numbers, view.dtype, self.path)
        view[...] = numbers.reshape(view.shape)

    def _indices(
        self, space: spaces.Discrete | spaces.MultiDiscrete, observed: Array
    ) -> Array:
        start, sizes = discrete_parts(space)
        indices = observed.reshape(len(observed), -1) - start
        if not self.one_hot:
            return indices
        one_hots = np.zeros((len(observed), int(sizes.sum())), np.float32)
        columns = indices + (np.cumsum(sizes) - sizes)
        np.put_along_axis(one_hots, columns, 1.0, axis=1)
        return one_hots


class RowConverter:
    """Converts observations with parts to rows. A row is `gymnasium.spaces.flatten` as
    float32 if no part is an image, or if bytes would hardly be shorter. Otherwise it is
    a row of bytes, with images as the agent sees them and indices as int32. Other
    numbers keep their own type, or become float32 if that is shorter. With
    `mask_sizes`, the values of each component of an action, the part `MASK` is the
    mask."""

    def __init__(
        self,
        space: AnySpace,
        env_name: str,
        image_size: tuple[int, ...] | None = None,
        channels: Channels = None,
        mask_sizes: tuple[int, ...] = (),
    ) -> None:
        self.space = space
        self._mask_sizes = mask_sizes
        self._env_name = env_name
        parts = list(parts_of(space))
        masked = (MASK,) if mask_sizes else None
        self._in_bytes = _wants_bytes([part for path, part in parts if path != masked])
        images = {
            path: ImageConverter(part, image_size, channels)
            for path, part in parts
            if self._in_bytes and is_image(part)
        }
        facts = [self._facts(path, part, images.get(path)) for path, part in parts]
        self.layout = row_layout(facts, MASK if mask_sizes else None)
        self.parts = [
            PartConverter(
                path=path,
                space=part,
                part=self.layout.part(name_of_part(path)),
                one_hot=not self._in_bytes,
                image=images.get(path),
            )
            for path, part in parts
        ]
        """What writes each part, in the order of `leaves`."""
        self.row_space = RowSpace(*self._bounds(), self.layout)

    def row(self, observed: Any) -> Array:
        """One observation → (D,). Raises LabError if it is not in the space."""
        try:
            parts = {
                name_of_part(path): _checked_part(path, part, value)
                for path, part, value in leaves(self.space, observed)
            }
            return self.rows(parts, count=1)[0]
        except ValueError as error:
            raise breaks_its_space(self._env_name, error) from None

    def batch(self, observed: Any, count: int) -> Array:
        """B = `count` observations, whose parts are (B, …) each → (B, D). Raises
        LabError if they are not in the space."""
        try:
            parts = {
                name_of_part(path): as_numbers(
                    as_array(value, path).reshape(count, *(part.shape or ())),
                    part,
                    path,
                )
                for path, part, value in leaves(self.space, observed)
            }
            return self.rows(parts, count)
        except ValueError as error:
            raise breaks_its_space(self._env_name, error) from None

    def rows(self, parts: Mapping[str, Array], count: int) -> Array:
        """Parts by name of B = `count` observations, (B, …) each and in their own types
        → (B, D). A missing part is zeros. Raises ValueError if float32 cannot hold a
        value."""
        rows = np.zeros((count, *self.layout.shape), self.layout.dtype)
        for converter in self.parts:
            observed = parts.get(converter.part.name)
            if observed is not None:
                converter.write(self.layout.view(rows, converter.part), observed)
        return rows

    def _facts(
        self, path: tuple[str, ...], part: AnySpace, image: ImageConverter | None
    ) -> PartSpace:
        name = name_of_part(path)
        shape = part.shape or ()
        dtype = part.dtype
        assert dtype is not None
        sizes: tuple[int, ...] = ()
        channels_last = False
        if isinstance(part, spaces.Discrete | spaces.MultiDiscrete):
            sizes = tuple(discrete_parts(part)[1].tolist())
            shape = (len(sizes),)
            dtype = np.dtype(np.int32)
            if not self._in_bytes:
                shape = (sum(sizes),)
        elif image is not None:
            shape = image.space.shape
        elif is_image(part):
            channels_last = len(shape) == 3 and channels_are_last(shape, None)
        else:
            shape = (math.prod(shape),)
        if self._mask_sizes and name == MASK:
            sizes = self._mask_sizes
        return PartSpace(
            name=name,
            shape=shape,
            dtype=_row_dtype(dtype) if self._in_bytes else FLOAT32,
            sizes=sizes,
            channels_last=channels_last,
        )

    def _bounds(self) -> tuple[Array, Array]:
        if self._in_bytes:
            low = np.zeros(self.layout.shape, np.uint8)
            return low, low + np.uint8(255)
        low = np.zeros(self.layout.shape, FLOAT32)
        high = np.zeros(self.layout.shape, FLOAT32)
        for converter in self.parts:
            flat = spaces.flatten_space(converter.space)
            assert isinstance(flat, spaces.Box)
            box = float32_box(flat)
            columns = slice(converter.part.start, converter.part.end)
            low[columns] = box.low
            high[columns] = box.high
        return low, high


def _wants_bytes(parts: Sequence[AnySpace]) -> bool:
    """Whether observations with these parts are rows of bytes."""
    if any(is_image(part) and _is_large(part) for part in parts):
        return True
    if len(parts) == 1:
        return False
    of_floats = sum(spaces.flatdim(part) for part in parts) * FLOAT32.itemsize
    of_bytes = sum(_num_bytes(part) for part in parts)
    return of_floats - of_bytes >= WORTH_BYTES


def _is_large(image: spaces.Box) -> bool:
    shape = image.shape
    if len(shape) == 4:
        shape = shape[1:]
    return min(sorted(shape)[-2:]) > LARGEST_GRID


def _num_bytes(part: AnySpace) -> int:
    """The bytes of a part in a row of bytes."""
    if isinstance(part, spaces.Discrete):
        return 4
    numbers = math.prod(part.shape or ())
    if isinstance(part, spaces.MultiDiscrete):
        return 4 * numbers
    assert part.dtype is not None
    return numbers * _row_dtype(part.dtype).itemsize


def _row_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in a row of bytes of numbers that are no longer than four bytes."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.itemsize < FLOAT32.itemsize or dtype == np.int32:
        return dtype
    return FLOAT32


class ObservationRows(
    gymnasium.ObservationWrapper[Array, Any, Any], RecordConstructorArgs
):
    """Every observation as a row, as `RowConverter` makes it."""

    def __init__(self, env: Env, converter: RowConverter) -> None:
        RecordConstructorArgs.__init__(self, converter=converter)
        super().__init__(env)
        self.converter = converter
        self.observation_space = converter.row_space

    @override
    def observation(self, observation: Any) -> Array:
        """One observation with parts → (D,). Raises LabError if they do not match the
        space."""
        return self.converter.row(observation)


def bare_env(env: Env) -> Env:
    """The environment below the wrappers that make rows of its observations."""
    if isinstance(env, ObservationRows):
        env = env.env
    if isinstance(env, ActionMasks):
        env = env.env
    return env


def _checked_part(path: tuple[str, ...], part: AnySpace, observed: Any) -> Array:
    """One part of an observation, (1, *shape), in the type of its space. Raises
    ValueError if it is not in it."""
    array = as_numbers(as_array(observed, path), part, path)
    shape = part.shape or ()
    if array.shape != shape and array.size != math.prod(shape):
        raise ValueError(
            f"{obs_name(path)} has the shape {array.shape}, its space {shape}"
        )
    return array.reshape(1, *shape)


def join_parts(
    env: Env,
    env_name: str,
    image_size: tuple[int, ...] | None = None,
    channels: Channels = None,
    mask_sizes: tuple[int, ...] = (),
) -> Env:
    """`env`, wrapped if its observations have parts. A Dict of one image becomes the
    image. `image_size` and `channels` are for images in rows of bytes; for `mask_sizes`
    see `RowConverter`. Raises SpecError with every observation, or part of one, that
    has no numbers."""
    space = env.observation_space
    check_parts(space, env_name)
    if isinstance(space, spaces.Dict) and len(space) == 1:
        ((key, part),) = space.items()
        if is_image(part):
            return gymnasium.wrappers.TransformObservation(env, itemgetter(key), part)
    if isinstance(space, COMPOSITE):
        converter = RowConverter(
            space=space,
            env_name=env_name,
            image_size=image_size,
            channels=channels,
            mask_sizes=mask_sizes,
        )
        return ObservationRows(env, converter)
    return env


def check_parts(space: AnySpace, env_name: str) -> None:
    """Raises SpecError with every observation, or part of one, that has no numbers."""
    unusable = {
        path: part
        for path, part in parts_of(space)
        if not isinstance(part, SUPPORTED) or is_empty(part)
    }
    if unusable:
        usable = [
            path[0]
            for path, _ in parts_of(space)
            if path not in unusable and len(path) == 1
        ]
        problems = [
            unsupported(part, env_name, path, usable) for path, part in unusable.items()
        ]
        raise SpecError("env", problems)
    _check_names(space, env_name)


MOST_VALUES = 2**31 - 1
"""The most values of an index in a row."""


def _check_names(space: AnySpace, env_name: str) -> None:
    """Raises SpecError if two parts have one name, or an index too many values."""
    names: set[str] = set()
    for path, part in parts_of(space):
        name = name_of_part(path)
        problem = None
        if name in names:
            problem = f'two parts of its observations are called "{name}"; rename one'
        names.add(name)
        values = 0
        if path and isinstance(part, spaces.Discrete | spaces.MultiDiscrete):
            values = int(discrete_parts(part)[1].max())
        if values > MOST_VALUES:
            problem = (
                f'its observation "{name}" has more than {MOST_VALUES:,} values; wrap '
                "the environment so that it has fewer"
            )
        if problem is not None:
            raise SpecError.of("env", "env.name", problem, env_name)


def leaves(
    space: AnySpace, observed: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], AnySpace, Any]]:
    """The innermost spaces of `space`, each with its path and its part of `observed`.
    `observed` is one observation or a batch. Raises ValueError if `observed` has other
    parts."""
    if isinstance(space, spaces.Dict):
        parts: list[tuple[Any, AnySpace]] = list(space.spaces.items())
        if not isinstance(observed, Mapping):
            kind = type(observed).__name__
            raise ValueError(
                f"{obs_name(path)} is of the type {kind}, its space a Dict"
            )
        for key, _ in parts:
            if key not in observed:
                name = obs_name((*path, str(key)))
                raise ValueError(f"{name} is missing; there are {_listed(observed)}")
        for key in observed:
            if key not in space.spaces:
                name = obs_name((*path, str(key)))
                raise ValueError(f"{name} is not in it; it has {_listed(space.spaces)}")
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
        if not isinstance(observed, Collection):
            kind = type(observed).__name__
            raise ValueError(
                f"{obs_name(path)} is of the type {kind}, its space a Tuple"
            )
        if len(observed) != len(parts):
            length = len(observed)
            raise ValueError(
                f"{obs_name(path)} has the length {length}, its space {len(parts)}"
            )
        observed = tuple(observed)
    else:
        yield path, space, observed
        return
    for key, part in parts:
        yield from leaves(part, observed[key], (*path, str(key)))


def as_array(observed: Any, path: tuple[str, ...]) -> Array:
    """The part of an observation at `path`, or of a batch, as an array. Raises
    ValueError."""
    try:
        return np.asarray(observed)
    except (ValueError, TypeError, RuntimeError) as error:
        # Lists of different lengths, or a tensor on a GPU or with a gradient.
        why = ""
        if not isinstance(error, ValueError):
            why = f": {error}"
        raise ValueError(f"{obs_name(path)} is no array{why}") from None


def as_numbers(array: Array, space: AnySpace, path: tuple[str, ...]) -> Array:
    """`array`, which is in `space`, or a batch, in its type. Raises ValueError unless
    it has numbers of it."""
    check_numbers(array, path)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):  # indices of one-hots
        index = array.reshape(-1, *(space.shape or ())) - space.start
        number = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if array.dtype.kind == "f" or not ((index >= 0) & (index < number)).all():
            raise ValueError(
                f"{obs_name(path)} is {array.tolist()!r:.60}, which is not in {space}"
            )
    assert space.dtype is not None
    return typed(array, space.dtype, path)


def _listed(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "none"
