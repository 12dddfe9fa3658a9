"""Nets that see images."""

from functools import partial
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.mlp import MLPNet, as_mlp
from slm_lab.agent.net.precision import products, restored
from slm_lab.core.errors import LabError
from slm_lab.core.types import Shape
from slm_lab.spec.checks.observations import no_image, no_room
from slm_lab.spec.schema.layers import ConvLayer, Pair
from slm_lab.spec.schema.net import ConvNetSpec


@final
class ConvBody(nn.Module):
    """Convolutions, each with its normalisation and activation: from images to
    features. Its tensors are in channels_last, in which the CPU's library is 1.5 times
    as fast. The weights stay as the flat vector has them; the library reorders them,
    and they are small."""

    def __init__(
        self, spec: ConvNetSpec, obs_shape: Shape, generator: torch.Generator
    ) -> None:
        super().__init__()
        if (error_line := no_image(obs_shape)) is not None:
            raise LabError(f"agent.net.type = {spec.type}: {error_line}")
        channels, height, width = obs_shape
        size = (height, width)
        built: list[tuple[layers.EmptyConv2d, list[layers.Norm]]] = []
        gain = layers.hidden_gain(spec.hid_layers_activation)
        for index, layer in enumerate(spec.conv_layers()):
            conv = layers.EmptyConv2d(channels, *layer)
            conv.scale = 1 / 255 if spec.normalize and index == 0 else 1.0
            layers.init_linear(conv, spec.init_fn, gain, generator)
            # One group: all numbers of an image together.
            group_norm = partial(nn.GroupNorm, 1)
            norms = layers.norm_layers(
                spec, layer.out_channels, nn.BatchNorm2d, group_norm
            )
            built.append((conv, norms))
            size = _size_after(index, layer, channels, size)
            channels = layer.out_channels
        self.convs = nn.ModuleList([conv for conv, _ in built])
        self.norms = nn.ModuleList([norm for _, norms in built for norm in norms])
        self._layers = built
        self.num_features = channels * size[0] * size[1]
        self._activation = layers.activation_function(spec.hid_layers_activation, dim=1)
        self._normalize, self._half = (
            spec.normalize and not built,
            spec.precision == "bf16",
        )
        self._norm_after = spec.norm_place == "after"
        self._products = products(spec)

    @override
    def forward(self, obs: Tensor) -> Tensor:
        """(B, C, H, W) of uint8 or floats to (B, num_features)."""
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
        return x if self._activation is None else self._activation(x)


@final
class ConvNet(nn.Module):
    """Convolutions, then a multilayer perceptron with one linear head per output."""

    def __init__(
        self,
        spec: ConvNetSpec,
        obs_shape: Shape,
        heads: layers.Heads,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.body = ConvBody(spec, obs_shape, generator)
        features = (self.body.num_features,)
        mlp = as_mlp(spec, spec.fc_hid_layers)
        self.tail = MLPNet(mlp, features, heads, generator, sees_obs=False)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) to one (B, head_dim) per head."""
        return self.tail.forward(self.body(obs))


def _size_after(index: int, layer: ConvLayer, channels: int, size: Pair) -> Pair:
    if (error_line := no_room(layer, (channels, *size))) is not None:
        raise LabError(f"agent.net.conv_hid_layers.{index}: {error_line}")
    after = layer.size_after(size)
    assert after is not None
    return after
