"""Nets of images."""

from itertools import pairwise
from math import prod

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import layers
from slm_lab.spec.schema.layers import Widths, weights_between
from slm_lab.spec.schema.net import NetSpec


class ConvNetSpec(NetSpec):
    """Convolutions over images (C, H, W), then fully connected layers. `layer_norm`
    normalises an image over all its numbers and scales it by channel."""

    ENCODES = True
    HAS_EMBEDDING = True

    conv_hid_layers: layers.ConvLayers = Field(
        description="one [out channels, kernel, stride, padding, dilation] per layer; "
        "the last three default to 1, 0, 1; sizes are numbers or [height, width]"
    )
    fc_hid_layers: Widths = Field(
        (), description="units per fully connected layer after the convolutions"
    )
    normalize: bool = Field(False, description="divide the image by 255")

    @override
    def conv_layers(self) -> list[layers.ConvLayer]:
        return [layers.ConvLayer.of(row) for row in self.conv_hid_layers]

    @property
    @override
    def multiplies_in_half(self) -> bool:
        return True

    @override
    def hidden_weights(self) -> int:
        convolutions = sum(
            layer.out_channels * following.out_channels * prod(following.kernel)
            for layer, following in pairwise(self.conv_layers())
        )
        return convolutions + weights_between(self.fc_hid_layers)


class DuelingConvNetSpec(ConvNetSpec):
    """Convolutions, then a value and an advantage stream (arXiv:1511.06581)."""

    ENCODES = False
