"""Lists of layers in net blocks: units per layer, and convolutions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from slm_lab.spec.schema.block import spec_error
from slm_lab.spec.schema.bounds import KERNEL, LAYERS, WIDTH
from slm_lab.spec.schema.fields import AnyList, IntList, numbers_up_to

Stack: TypeAlias = tuple[int, ...]
"""Units per layer."""

Pair: TypeAlias = tuple[int, int]
"""Height and width."""


def _few_layers(value: Any) -> Any:
    message = LAYERS.refusal(value)
    if message:
        raise spec_error(message)
    return value


FEW_LAYERS = BeforeValidator(_few_layers)
"""Checks the length of a list before each of its entries."""


def _whole(item: Any, least: int) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= least


def stacks_of(part: Any) -> tuple[Stack, ...]:
    """Converts […] to one stack, [[…], …] to several. Raises ValueError for anything
    else."""
    if not isinstance(part, list | tuple):
        raise ValueError("not a list")
    nested = bool(part) and all(isinstance(item, list | tuple) for item in part)
    stacks = part
    if not nested:
        stacks = [part]
    if not all(_whole(size, 1) for stack in stacks for size in stack):
        raise ValueError("not units per layer")
    return tuple(tuple(stack) for stack in stacks)


def _hydra_layers(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Checks [heads, body, tails]: [[…] or [[…]], […], [[…], …] or […]]."""
    shape = "must be three lists of units per layer: [heads, body, tails]"
    try:
        heads, body, _ = (stacks_of(part) for part in value)
    except ValueError:
        raise spec_error(shape) from None
    if len(body) != 1:
        raise spec_error(shape)
    if len(heads) != 1:
        raise spec_error(
            "has several heads, and an agent has one observation: give one list"
        )
    for stack in (stack for part in value for stack in stacks_of(part)):
        message = WIDTH.refusal(stack) or LAYERS.refusal(stack)
        if message:
            raise spec_error(message)
    return value


HydraLayers: TypeAlias = Annotated[AnyList, AfterValidator(_hydra_layers)]
"""[heads, body, tails] of a net with several outputs."""


class ConvLayer(NamedTuple):
    """One convolution; sizes are (height, width)."""

    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    @classmethod
    def of(cls, row: Sequence[Any]) -> "ConvLayer":
        """The layer of a row of a spec."""
        out_channels, *sizes = row
        return cls(
            out_channels, *((s, s) if isinstance(s, int) else tuple(s) for s in sizes)
        )

    @property
    def reach(self) -> Pair:
        """Height and width of the receptive field of one output."""
        height, width = (
            d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)
        )
        return height, width

    def size_after(self, size: Pair) -> Pair | None:
        """Height and width of the output for an input of `size`; None if the input is
        too small."""
        both = zip(size, self.padding, self.reach, self.stride, strict=True)
        height, width = (1 + (n + 2 * p - reach) // s for n, p, reach, s in both)
        if height > 0 and width > 0:
            return (height, width)
        return None


def _conv_layers(rows: tuple[Any, ...]) -> tuple[Any, ...]:
    """Checks rows [out, kernel, stride, padding, dilation]; sizes may be pairs."""

    def size(item: Any, least: int) -> bool:
        if isinstance(item, list):
            return len(item) == 2 and all(_whole(part, least) for part in item)
        return _whole(item, least)

    least = (1, 1, 1, 0, 1)
    for row in rows:
        right = isinstance(row, list) and 2 <= len(row) <= 5 and _whole(row[0], 1)
        if not right or not all(
            size(item, low) for item, low in zip(row, least, strict=False)
        ):
            raise spec_error(
                "every layer must be [out, kernel, stride, padding, dilation]"
            )
        sizes = (WIDTH.refusal(row[0]), *map(KERNEL.refusal, row[1:]))
        message = next(filter(None, sizes), None)
        if message:
            raise spec_error(message)
    return rows


ConvLayers: TypeAlias = Annotated[AnyList, AfterValidator(_conv_layers), FEW_LAYERS]
"""One row per convolution."""


def _widths(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if min(sizes, default=1) < 1:
        raise spec_error("every layer must have at least 1 unit")
    message = WIDTH.refusal(sizes)
    if message:
        raise spec_error(message)
    return sizes


Widths: TypeAlias = Annotated[
    IntList, AfterValidator(_widths), FEW_LAYERS, numbers_up_to(WIDTH)
]
"""Units per hidden layer."""


def weights_between(widths: Sequence[int]) -> int:
    """The number of weights between layers of these widths."""
    return sum(width * following for width, following in pairwise(widths))
