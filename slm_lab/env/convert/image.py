"""Converts images: channels first, resized as in the spec."""

from typing import Any, Literal, TypeGuard

import numpy as np
from gymnasium import Space, spaces
from PIL import Image

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.types import Array


def is_image(space: Space[Any]) -> TypeGuard[spaces.Box]:
    """Whether observations are images: uint8 of 2 to 4 axes. The shape is (H, W),
    (H, W, C) or (C, H, W). A stack of frames is (L, H, W, C) or (L, C, H, W)."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and 2 <= len(space.shape) <= 4
    )


FEW = 4
"""The most channels that the images of a stack have if nothing else shows which axis
has them."""


def channels_are_last(
    shape: tuple[int, ...], where: Literal["first", "last"] | None
) -> bool:
    """Whether the last axis of an image has its channels: (H, W, C), not (C, H, W). A
    stack is then (L, H, W, C), not (L, C, H, W). `where` decides, if given.

    Otherwise: if only two adjacent axes of an image are equal, they are height and
    width. If not, the shorter one of its first and last axis has the channels; of equal
    ones the last. In a stack just one of these axes must be `FEW` long, or it is open:
    raises SpecError."""
    if where is not None:
        return where == "last"
    first, middle, last = shape[-3:]
    if (first == middle) != (middle == last):
        return first == middle
    if len(shape) == 4 and (first <= FEW) == (last <= FEW):
        raise SpecError("env", [_open_layout(shape)])
    return last <= first


def _open_layout(shape: tuple[int, ...]) -> Problem:
    length, first, middle, last = shape
    channels_first = f"(L, C, H, W), {first} channels of {middle} × {last}"
    channels_last = f"(L, H, W, C), {last} channels of {first} × {middle}"
    message = (
        f"is missing: its stacks of {length} images {shape} may be {channels_first}: "
        f'"first", or {channels_last}: "last"'
    )
    return Problem("env.image_channels", message)


class ImageConverter:
    """Images of any layout → (C, H, W) uint8; the frames of a stack become channels.
    `channels` is "first", "last", or None: `channels_are_last` finds them. `size` is
    (width, height) in pixels. Each pixel of the result is the mean of the pixels that
    it covers."""

    def __init__(
        self,
        raw_space: spaces.Box,
        size: tuple[int, ...] | None,
        channels: Literal["first", "last"] | None = None,
    ) -> None:
        shape = raw_space.shape
        self._ndim = len(shape)
        self.channels_last = self._ndim > 2 and channels_are_last(shape, channels)
        depth, height, width = self._first(np.empty((1, *shape), np.uint8)).shape[1:]
        self.size = (
            None if size is None or size == (width, height) else (size[0], size[1])
        )
        """(width, height) after resizing; None: as they are."""
        if self.size is not None:
            width, height = self.size
        low = raw_space.low.min()
        high = raw_space.high.max()
        self.space = spaces.Box(low, high, (depth, height, width), np.uint8)

    def convert(self, images: Array) -> Array:
        """Images (B, …) in the layout of the environment → (B, C, H, W)."""
        images = self._first(images)
        if self.size is None:
            return images
        return self._resized(images, self.size)

    def _first(self, images: Array) -> Array:
        if self._ndim == 2:
            return images[:, None]
        if self.channels_last:
            images = np.ascontiguousarray(np.moveaxis(images, -1, -3))
        return images.reshape(len(images), -1, *images.shape[-2:])

    def _resized(self, images: Array, size: tuple[int, int]) -> Array:
        resized = np.empty((*images.shape[:2], size[1], size[0]), np.uint8)
        for image, channels in zip(images, resized, strict=True):
            for channel, plane in zip(image, channels, strict=True):
                plane[...] = Image.fromarray(channel).resize(size, Image.Resampling.BOX)
        return resized
