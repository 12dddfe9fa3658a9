"""Nets that see images."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from slm_lab.agent.net.activation import activation_function
from slm_lab.agent.net.batch_renorm import BatchRenorm
from slm_lab.agent.net.init import EmptyConv2d, Norm, hidden_gain, init_linear, init_norm
from slm_lab.agent.net.inputs import image_input
from slm_lab.agent.net.mlp import MLPNet, as_mlp
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.layers import ConvLayer, Pair
from slm_lab.spec.schema.net import ConvNetSpec

COLOURS = (1, 3)
"""A last size that is the number of channels: no image is so narrow."""


@final
class ConvBody(nn.Module):
    """Convolutions, each with its normalisation and activation: from images to features.

    What flows through it is in channels_last, in which the CPU's library is 1.5 times as fast. The
    weights stay as the flat vector has them; the library reorders them, and they are small.
    """

    def __init__(
        self, spec: ConvNetSpec, obs_shape: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        channels, height, width = _image_shape(spec.type, obs_shape)
        size = (height, width)
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        gain = hidden_gain(spec.hid_layers_activation)
        for index, layer in enumerate(spec.conv_layers()):
            conv = EmptyConv2d(channels, *layer)
            init_linear(conv, spec.init_fn, gain, generator)
            self.convs.append(conv)
            self.norms.append(_norms(spec, layer.out_channels))
            size = _size_after(index, layer, channels, size)
            channels = layer.out_channels
        self.num_features = channels * size[0] * size[1]
        self._activation = activation_function(spec.hid_layers_activation, dim=1)
        self._normalize = spec.normalize

    def forward(self, obs: Tensor) -> Tensor:
        """(B, C, H, W) of uint8 or floats to (B, num_features)."""
        x = image_input(obs, self._normalize)
        for conv, norms in zip(self.convs, self.norms, strict=True):
            x = norms(conv(x))
            if self._activation is torch.relu:
                x = torch.relu_(x)  # nobody needs what it came from, and it may be large
            elif self._activation is not None:
                x = self._activation(x)
        return x.flatten(1)


@final
class ConvNet(nn.Module):
    """Convolutions, then a multilayer perceptron with one linear head per output."""

    def __init__(
        self,
        spec: ConvNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float | None],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.body = ConvBody(spec, obs_shape, generator)
        features = (self.body.num_features,)
        mlp = as_mlp(spec, spec.fc_hid_layers)
        self.tail = MLPNet(mlp, features, head_dims, head_gains, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) to one (B, head_dim) per head."""
        return self.tail.forward(self.body(obs))


def _image_shape(net: str, obs_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(obs_shape) == 3 and obs_shape[2] not in COLOURS:
        channels, height, width = obs_shape
        return channels, height, width
    fix = {
        1: "vectors need MLPNet",
        4: 'several frames are one image with env.frame_op "concat"',
    }.get(len(obs_shape), "wrap it so that the channels are there, and come first")
    raise LabError(
        f"agent.net.type = {net}: takes observations that are images (C, H, W), the "
        f"environment's have the shape {obs_shape}; {fix}"
    )


def _size_after(index: int, layer: ConvLayer, channels: int, size: Pair) -> Pair:
    after = layer.size_after(size)
    if after is None:
        raise LabError(
            f"agent.net.conv_hid_layers.{index}: a kernel that reaches over {layer.reach} numbers "
            f"with padding {layer.padding} does not fit an input of the shape "
            f"{(channels, *size)}, (C, H, W); make the kernel smaller, or the strides before it"
        )
    return after


def _norms(spec: ConvNetSpec, channels: int) -> nn.Sequential:
    norms: list[Norm] = []
    if spec.batch_norm == "renorm":
        norms.append(BatchRenorm(channels))
    elif spec.batch_norm:
        norms.append(nn.BatchNorm2d(channels))
    if spec.layer_norm:
        norms.append(nn.GroupNorm(1, channels))  # one group: all numbers of an image together
    for norm in norms:
        init_norm(norm)
    return nn.Sequential(*norms)
