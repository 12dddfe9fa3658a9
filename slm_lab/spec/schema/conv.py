"""Nets of images."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any

from annotated_types import Len
from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import bounds, layers
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.layers import Widths, weights_between
from slm_lab.spec.schema.net import NetSpec, copied_as

KERNEL_SIZE = 3 * 3
"""The weights of a kernel of a ResNet."""

NATURE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The convolutions of Mnih et al. (2015), "Human-level control through deep
reinforcement learning"."""

SMALLEST_IMAGE = 36
"""Pixels per side that `NATURE_LAYERS` need; smaller images get `SMALL_LAYERS`."""

SMALL_LAYERS = ((32, 3, 2, 1), (64, 3, 2, 1))


OF_THE_WHOLE: Mapping[str, Any] = {"fc_hid_layers": (), "obs": None, "parts": {}}
"""Keys of a net that its encoder of an image does not have. They belong to the layers
behind the encoder, and to other parts."""


class ConvNetSpec(NetSpec):
    """Convolutions over images (C, H, W), then fully connected layers. `layer_norm`
    normalises an image over all its numbers and scales it by channel."""

    ENCODES = True
    SEES_IMAGES = True
    NEEDS_IMAGES = True
    HAS_EMBEDDING = True
    HAS_DROPOUT = True

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

    @override
    def as_encoder(self) -> "ConvNetSpec":
        # a DuelingConvNet has streams behind them, and is of another class
        return copied_as(ConvNetSpec, self, type="ConvNet", **OF_THE_WHOLE)

    @property
    @override
    def lacks_hidden_layers(self) -> bool:
        return not self.fc_hid_layers

    @override
    def hidden_weights(self) -> int:
        convolutions = sum(
            layer.out_channels * following.out_channels * prod(following.kernel)
            for layer, following in pairwise(self.conv_layers())
        )
        return convolutions + weights_between(self.fc_hid_layers)


def conv_net_for(height: int, width: int, in_bytes: bool) -> ConvNetSpec:
    """The convolutions for images of this size for which a spec names no net. Images of
    bytes are divided by 255."""
    convolutions: Sequence[Sequence[int]] = NATURE_LAYERS
    if min(height, width) < SMALLEST_IMAGE:
        convolutions = SMALL_LAYERS
    return ConvNetSpec(
        type="ConvNet",
        conv_hid_layers=tuple([*layer] for layer in convolutions),
        normalize=in_bytes,
    )


class DuelingConvNetSpec(ConvNetSpec):
    """Convolutions, then a value and an advantage stream (arXiv:1511.06581)."""

    ENCODES = False
    SPLITS_Q = True

    @override
    def as_encoder(self) -> ConvNetSpec:
        keys = {**self.own_keys(), "type": "ConvNet", "fc_hid_layers": ()}
        return ConvNetSpec.model_validate(keys)


class ResNetSpec(NetSpec):
    """IMPALA's residual network for images (C, H, W), its "deep" one
    (arXiv:1802.01561). Its stages are a convolution, max pooling that halves the image,
    and residual blocks. Fully connected layers follow. All convolutions are of 3 × 3.
    Norms stand at the activations, two in each block and one after the last stage."""

    ENCODES = True
    SEES_IMAGES = True
    NEEDS_IMAGES = True
    HAS_EMBEDDING = True
    HAS_DROPOUT = True

    channels: Annotated[Widths, Len(1)] = Field(
        (16, 32, 32), description="channels of each stage, at least one"
    )
    num_blocks: Annotated[Count, bounds.STACKED] = Field(
        2, description="residual blocks of each stage, of two convolutions each"
    )
    fc_hid_layers: Widths = Field(
        (256,), description="units per fully connected layer after the stages"
    )
    normalize: bool = Field(False, description="divide the image by 255")

    @override
    def as_encoder(self) -> "ResNetSpec":
        return copied_as(ResNetSpec, self, type="ResNet", **OF_THE_WHOLE)

    @property
    @override
    def lacks_hidden_layers(self) -> bool:
        return not self.fc_hid_layers

    @override
    def hidden_weights(self) -> int:
        in_blocks = sum(2 * self.num_blocks * size**2 for size in self.channels)
        kernels = weights_between(self.channels) + in_blocks
        return KERNEL_SIZE * kernels + weights_between(self.fc_hid_layers)
