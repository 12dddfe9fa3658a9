"""What an agent's observation looks like: one array, or a row with parts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from slm_lab.core.types import Array, IntArray, Shape

FLOAT32 = np.dtype(np.float32)
BYTE = np.dtype(np.uint8)

ALIGNMENT = 4
"""A row of bytes has a multiple of so many, so that floats in it can be read in
place."""


@final
@dataclass(frozen=True)
class Part:
    """A part of an observation, and its place in the row."""

    name: str
    """The keys of its path, joined by dots: "image", or "robot.position"."""
    shape: Shape
    dtype: np.dtype[np.generic]
    start: int
    """Its first column in a row."""
    end: int
    """The column after its last one."""
    sizes: tuple[int, ...] = ()
    """The number of values of each index, from 0, if it has indices. A mask has the
    number of values of each component of an action. Otherwise empty."""
    channels_last: bool = False
    """Whether it is an image (H, W, C) as the environment gives it, not (C, H, W)."""

    @property
    def is_image(self) -> bool:
        """Whether it is an array of bytes with three axes."""
        return len(self.shape) == 3

    @property
    def image_shape(self) -> Shape:
        """The shape of the image with its channels first."""
        if not self.channels_last:
            return self.shape
        height, width, channels = self.shape
        return channels, height, width


@final
@dataclass(frozen=True)
class ObservationLayout:
    """The shape and type of an agent's observations. If they have parts, an observation
    is a row with one axis. Where all parts are floats it is a row of float32, else of
    bytes. A row of bytes begins with the parts of the longest numbers, so every number
    can be read in place. Rows that are joined over time stand one after another."""

    shape: Shape
    dtype: np.dtype[np.generic]
    frames: int = 1
    """Equal parts of the first axis, the newest last. Within an episode an observation
    is the previous one, shifted by one frame."""
    parts: tuple[Part, ...] = ()
    """The parts of a frame; empty if the observation is one array."""
    mask: str | None = None
    """The part that tells which actions are allowed; None without one."""

    @property
    def row_size(self) -> int:
        """The columns of a frame of a row."""
        return self.shape[0] // self.frames

    @property
    def is_bytes(self) -> bool:
        """Whether it is a row of bytes."""
        return bool(self.parts) and self.dtype == BYTE

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts, without the mask."""
        return tuple(part.name for part in self.parts if part.name != self.mask)

    def part(self, name: str) -> Part:
        """The part of this name. Raises KeyError."""
        return {part.name: part for part in self.parts}[name]

    def view(self, rows: Array, part: Part) -> Array:
        """The numbers of a part, (B, *shape), as a view of rows (B, row_size)."""
        columns = rows[:, part.start : part.end].view(part.dtype)
        return columns.reshape(len(rows), *part.shape)

    @property
    def float_parts(self) -> tuple[Part, ...]:
        """The parts that can be normalised: all of float32, except the mask."""
        return tuple(
            part
            for part in self.parts
            if part.dtype == FLOAT32 and part.name != self.mask
        )

    @property
    def num_floats(self) -> int:
        """The numbers of a frame that can be normalised; of an observation without
        parts all, unless it is an image."""
        if not self.parts:
            is_image = self.dtype == BYTE and len(self.shape) > 1
            return 0 if is_image else math.prod(self.shape)
        return len(self.columns_of(self.float_parts))

    def floats(self, rows: Array) -> Array:
        """Contiguous rows (B, frames · row_size) as a view of float32, (B · frames, D),
        whatever their numbers are."""
        return rows.reshape(-1, self.row_size).view(FLOAT32)

    def columns_of(self, parts: Iterable[Part]) -> IntArray:
        """The columns of `floats` with parts of float32, (F,)."""
        scale = self.columns_of_a_float
        columns = [np.arange(part.start // scale, part.end // scale) for part in parts]
        return np.concatenate([np.arange(0), *columns])

    @property
    def columns_of_a_float(self) -> int:
        """The columns of a row in which a number of float32 is."""
        return FLOAT32.itemsize // self.dtype.itemsize

    def joined(
        self, frames: int, shape: Shape, dtype: np.dtype[np.generic]
    ) -> "ObservationLayout":
        """The layout of so many frames, joined to an observation of this shape and
        type. Only rows keep their parts."""
        parts = self.parts if len(shape) == 1 else ()
        return replace(self, shape=shape, dtype=dtype, frames=frames, parts=parts)


@dataclass(frozen=True)
class PartSpace:
    """The facts about a part from which its place in a row follows."""

    name: str
    shape: Shape
    dtype: np.dtype[np.generic]
    sizes: tuple[int, ...] = ()
    channels_last: bool = False


def row_layout(
    spaces: Sequence[PartSpace], mask: str | None = None
) -> ObservationLayout:
    """The layout of rows with these parts: floats first, then numbers by their length.
    Else they keep their order. A mask comes last of its type."""
    all_floats = all(space.dtype == FLOAT32 for space in spaces)
    dtype = FLOAT32 if all_floats else BYTE
    ordered = sorted(
        spaces,
        key=lambda space: (
            -space.dtype.itemsize,
            space.dtype != FLOAT32,
            space.name == mask,
        ),
    )
    parts = list[Part]()
    start = 0
    for space in ordered:
        length = math.prod(space.shape) * space.dtype.itemsize // dtype.itemsize
        parts.append(
            Part(
                name=space.name,
                shape=space.shape,
                dtype=space.dtype,
                start=start,
                end=start + length,
                sizes=space.sizes,
                channels_last=space.channels_last,
            )
        )
        start += length
    if dtype == BYTE:
        start += -start % ALIGNMENT
    return ObservationLayout((start,), dtype, parts=tuple(parts), mask=mask)
