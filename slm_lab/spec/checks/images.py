"""Whether convolutions can take an observation."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.spec.schema.layers import ConvLayer
from slm_lab.spec.schema.net import NetSpec

Shape: TypeAlias = tuple[int, ...]

COLOURS = (1, 3)
"""Sizes of a last axis that holds the channels: no image is that narrow."""


class LayerFault(NamedTuple):
    """Why a convolution has no output."""

    number: int
    """Its number in the stack."""
    message: str


def image_fault(shape: Shape) -> str | None:
    """Why a net of images cannot take `shape`; None if it can."""
    if len(shape) == 3 and shape[2] not in COLOURS:
        return None
    fix = {
        1: "vectors need MLPNet",
        4: 'several frames are one image with env.frame_op "concat"',
    }.get(len(shape), "wrap it so that the channels are there, and come first")
    return (
        "takes observations that are images (C, H, W), but the environment's have the "
        f"shape {shape}; {fix}"
    )


def convolution_fault(layers: Sequence[ConvLayer], shape: Shape) -> LayerFault | None:
    """The first convolution that has no output for an image (C, H, W) of `shape`; None
    if all have."""
    for index, layer in enumerate(layers):
        size = layer.size_after((shape[1], shape[2]))
        if size is None:
            message = (
                f"a kernel reaches over {layer.reach} numbers with padding "
                f"{layer.padding}: it does not fit an input of the shape {shape}, (C, "
                "H, W); make the kernel smaller, or the strides before it"
            )
            return LayerFault(index, message)
        shape = (layer.out_channels, *size)
    return None


def image_problems(
    net: NetSpec, shape: Shape, type_path: str, layers_path: str
) -> Iterator[Problem]:
    """The problem of a net of images with an observation of `shape`, at the path of its
    type or of its convolutions."""
    no_image = image_fault(shape)
    if no_image is not None:
        yield Problem(type_path, no_image, net.type)
        return
    fault = convolution_fault(net.conv_layers(), shape)
    if fault is not None:
        row = net.model_dump()["conv_hid_layers"][fault.number]
        yield Problem(f"{layers_path}.{fault.number}", fault.message, row)
