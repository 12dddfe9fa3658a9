"""The residual network for images of IMPALA (arXiv:1802.01561, figure 3, right)."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.body import Body
from slm_lab.agent.net.layers import products, restored
from slm_lab.core.types import Shape


@final
class Activated(nn.Module):
    """Norms and an activation, (B, C, H, W) to the same."""

    def __init__(
        self,
        channels: int,
        activation: layers.ActivationClass | None,
        norms: Sequence[layers.Norm],
        norm_after: bool,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList([norm(channels) for norm in norms])
        self._activation = layers.activation_function(activation, dim=1)
        self._norm_after = norm_after

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self._norm_after and self._activation is not None:
            x = self._activation(x)
        for norm in self.norms:
            x = norm(restored(x))
        if not self._norm_after and self._activation is not None:
            x = self._activation(x)
        return x


@final
class ResidualBlock(nn.Module):
    """x + W_2 * φ(W_1 * φ(x)) with convolutions of 3 × 3, (B, C, H, W) to the same. The
    norms are at the activations. The sum is in float32, whatever multiplies."""

    def __init__(
        self, first: Activated, second: Activated, convs: Sequence[nn.Conv2d]
    ) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self.convs = nn.ModuleList(convs)

    @override
    def forward(self, x: Tensor) -> Tensor:
        inner, outer = self.convs
        return x + restored(outer(self.second(inner(self.first(x)))))


@final
class Stage(nn.Module):
    """A convolution of 3 × 3, a maximum over 3 × 3 with stride 2, and residual blocks.
    It maps (B, C, H, W) to (B, C', ⌈H / 2⌉, ⌈W / 2⌉)."""

    def __init__(self, conv: nn.Conv2d, blocks: Sequence[ResidualBlock]) -> None:
        super().__init__()
        self.conv = conv
        self.blocks = nn.ModuleList(blocks)

    @override
    def forward(self, x: Tensor) -> Tensor:
        x = restored(max_pool2d(self.conv(x), 3, stride=2, padding=1))
        for block in self.blocks:
            x = block(x)
        return x


@final
class ResNetBody(Body):
    """Stages of residual blocks, and an activation: from images to features. Images are
    in channels_last, and divided by 255 with `normalize`, as in a `ConvBody`. Where
    images have an even size, the authors' maxima lie one pixel further right and down,
    as TensorFlow pads."""

    def __init__(
        self,
        obs_shape: Shape,
        channels: Sequence[int],
        num_blocks: int,
        generator: torch.Generator,
        *,
        activation: layers.ActivationClass | None = nn.ReLU,
        init_fn: str | None = None,
        norms: Sequence[layers.Norm] = (),
        norm_after: bool = False,
        normalize: bool = False,
        half: bool = False,
    ) -> None:
        super().__init__()
        gain = layers.hidden_gain(activation)

        def conv(in_channels: int, out_channels: int) -> layers.EmptyConv2d:
            layer = layers.EmptyConv2d(in_channels, out_channels, 3, padding=1)
            layers.init_linear(layer, init_fn, gain, generator)
            return layer

        def activated(size: int) -> Activated:
            return Activated(size, activation, norms, norm_after)

        def block(size: int) -> ResidualBlock:
            convs = [conv(size, size), conv(size, size)]
            return ResidualBlock(activated(size), activated(size), convs)

        in_channels, height, width = obs_shape
        stages: list[Stage] = []
        for size in channels:
            first = conv(in_channels, size)
            if normalize and not stages:
                first.scale = 1 / 255
            stages.append(Stage(first, [block(size) for _ in range(num_blocks)]))
            in_channels = size
            height = -(-height // 2)
            width = -(-width // 2)
        self.stages = nn.ModuleList(stages)
        self.last = activated(in_channels)
        self.width = in_channels * height * width
        self._half = half
        self._products = products(half)

    @override
    def embed(self, obs: Tensor) -> Tensor:
        """(B, C, H, W) of uint8 or floats to (B, width)."""
        x = layers.image_input(obs, normalize=False, half=self._half)
        with self._products(x):
            for stage in self.stages:
                x = stage(x)
        return restored(self.last(x).flatten(1))
