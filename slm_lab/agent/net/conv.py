"""The convolutions of nets that see images."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.body import Body
from slm_lab.agent.net.layers import products, restored
from slm_lab.core.types import Shape

ConvArgs: TypeAlias = Sequence[Any]
"""Arguments of nn.Conv2d from `out_channels` on."""


@final
class ConvBody(Body):
    """Convolutions, each with its normalisation and activation: from images to
    features. Its tensors are in channels_last, in which the CPU's library is 1.5 times
    as fast. The weights stay as the flat vector has them; the library reorders them,
    and they are small. With `normalize` it divides images by 255."""

    def __init__(
        self,
        obs_shape: Shape,
        convs: Sequence[ConvArgs],
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
        channels, height, width = obs_shape
        size = [height, width]
        built: list[tuple[layers.EmptyConv2d, list[nn.Module]]] = []
        gain = layers.hidden_gain(activation)
        for args in convs:
            conv = layers.EmptyConv2d(channels, *args)
            layers.init_linear(conv, init_fn, gain, generator)
            channels = conv.out_channels
            built.append((conv, [norm(channels) for norm in norms]))
            size = _output_size(conv, size)
        if built and normalize:
            built[0][0].scale = 1 / 255
        self.convs = nn.ModuleList([conv for conv, _ in built])
        self.norms = nn.ModuleList(
            [norm for _, norms_after in built for norm in norms_after]
        )
        self._layers = built
        self.width = channels * size[0] * size[1]
        self._activation = layers.activation_function(activation, dim=1)
        self._normalize = normalize and not built
        self._half = half
        self._norm_after = norm_after
        self._products = products(half)

    @override
    def embed(self, obs: Tensor) -> Tensor:
        """(B, C, H, W) of uint8 or floats to (B, width)."""
        x = layers.image_input(obs, self._normalize, self._half)
        with self._products(x):
            for conv, norms in self._layers:
                x = conv(x)
                if self._norm_after:
                    x = self._activated(x)
                for norm in norms:
                    x = norm(restored(x))
                if not self._norm_after:
                    x = self._activated(x)
        return restored(x.flatten(1))

    def _activated(self, x: Tensor) -> Tensor:
        if self._activation is torch.relu:
            return torch.relu_(x)  # in place: its input may be large, and is not needed
        if self._activation is None:
            return x
        return self._activation(x)


def _output_size(conv: nn.Conv2d, size: Sequence[int]) -> list[int]:
    """Height and width of the output of a convolution, for the size of its input."""
    padding = cast(tuple[int, ...], conv.padding)
    sizes = []
    for axis, length in enumerate(size):
        reach = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        sizes.append((length + 2 * padding[axis] - reach) // conv.stride[axis] + 1)
    return sizes
