"""Multilayer perceptrons."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.layers import products, restored
from slm_lab.agent.net.noise import NoisyLinear
from slm_lab.agent.torch_versions import is_exporting
from slm_lab.core.types import Shape

HiddenLayer: TypeAlias = tuple[layers.EmptyLinear, list[nn.Module]]
"""A linear layer and the norms around its activation."""


class MLPNet(nn.Module):
    """Hidden layers (linear, norm, activation) and one linear head per output.

    With `norm_after` a layer is linear, activation, norm. `out_activations` has one
    for each head, or none. A net that sees observations multiplies them in float32,
    with `half` the others in bfloat16. One whose input are the features of another net
    (`sees_obs` False) does all in `half`. With `sigma` the layers and heads are noisy,
    but for the one that sees observations."""

    without_gradient: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    """A faster `forward` for calls without a gradient; None if there is none."""

    def __init__(
        self,
        in_shape: Shape,
        hidden: Sequence[int],
        heads: layers.Heads,
        generator: torch.Generator,
        *,
        activation: layers.ActivationClass | None = nn.ReLU,
        out_activations: Sequence[layers.ActivationClass | None] = (),
        init_fn: str | None = None,
        norms: Sequence[layers.Norm] = (),
        input_norms: Sequence[layers.Norm] = (),
        norm_after: bool = False,
        sees_obs: bool = True,
        half: bool = False,
        matmul: Literal["torch", "numpy"] = "torch",
        sigma: float | None = None,
    ) -> None:
        super().__init__()
        (self.in_size,) = in_shape
        widths = [self.in_size, *hidden]
        self.width = widths[-1]
        """The number of features."""
        self.num_exact = 1 if sees_obs else 0
        """The number of first layers, which multiply in float32."""
        linear = [
            _linear(*size, sigma if index >= self.num_exact else None)
            for index, size in enumerate(pairwise(widths))
        ]
        outputs = [_linear(self.width, head.dim, sigma) for head in heads]
        self._input_norms = tuple(norm(self.in_size) for norm in input_norms)
        inner_norms = [[norm(width) for norm in norms] for width in hidden]
        self._norm_after = norm_after
        self.hidden = nn.ModuleList(linear)
        self.norms = nn.ModuleList(
            [*self._input_norms, *chain.from_iterable(inner_norms)]
        )
        self.heads = nn.ModuleList(outputs)
        self._layers = tuple(zip(linear, inner_norms, strict=True))
        gain = layers.hidden_gain(activation)
        for layer in linear:
            layers.init_linear(layer, init_fn, gain, generator)
        layers.init_heads(outputs, heads, init_fn, generator)
        self._activation = layers.activation_function(activation)
        self._out_activations = [
            layers.activation_function(out) for out in out_activations
        ]
        self.out_acts = nn.ModuleList(
            f for f in self._out_activations if isinstance(f, nn.Module)
        )
        self._products = products(half)
        self.is_half = half
        self.by_numpy = matmul == "numpy" and not half
        for layer in linear:
            layer.by_numpy = self.by_numpy
        self._has_modes = len(self.norms) > 0
        has_other_steps = self._has_modes or any(self._out_activations)
        self.is_plain = not has_other_steps and sigma is None
        """Whether it is a stack of linear layers with one activation between them."""

    @property
    def activation(self) -> layers.ActivationFunction | None:
        """The activation of the hidden layers."""
        return self._activation

    @override
    def train(self, mode: bool = True) -> Self:
        """A net of plain layers has no modes, and walking through the layers takes 30
        µs."""
        if self._has_modes:
            return super().train(mode)
        return self

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per head."""
        is_real = not torch.is_grad_enabled() and not is_exporting()
        if self.without_gradient is not None and is_real:
            return self.without_gradient(layers.as_floats(obs))
        return self._outputs(self.features(obs))

    def _outputs(self, features: Tensor) -> tuple[Tensor, ...]:
        outputs = tuple(head(features) for head in self.heads)
        if not any(self._out_activations):
            return outputs
        pairs = zip(outputs, self._out_activations, strict=True)
        return tuple(out if f is None else f(out) for out, f in pairs)

    def compute_weights(self) -> None:
        """Notes that the weights are computed, not stored."""
        self.is_plain = False
        self._has_modes = True

    def features(self, obs: Tensor) -> Tensor:
        """(B, D) to the output of the last hidden layer, (B, width), layer by layer."""
        x = self._normed(layers.as_floats(obs))
        return self._between(0, len(self._layers), x)

    @property
    def embedded_width(self) -> int:
        """The numbers of `embed`."""
        if self._num_embedding == 0:
            return self.in_size
        return self._layers[self._num_embedding - 1][0].out_features

    def embed(self, obs: Tensor) -> Tensor:
        """(B, D) to the output of the layers before the last hidden one, (B, W). A
        single hidden layer counts as before."""
        x = self._normed(layers.as_floats(obs))
        return restored(self._between(0, self._num_embedding, x))

    def from_embedding(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `embed` puts out, (B, W), to one (B, head_dim) per head."""
        end = len(self._layers)
        return self._outputs(self._between(self._num_embedding, end, x))

    @property
    def _num_embedding(self) -> int:
        """The layers of `embed`."""
        return min(max(len(self._layers) - 1, 1), len(self._layers))

    def _normed(self, obs: Tensor) -> Tensor:
        for norm in self._input_norms:
            obs = norm(obs)
        return obs

    def _between(self, start: int, end: int, x: Tensor) -> Tensor:
        """Through the hidden layers from `start` to `end`, the first ones exactly."""
        inexact = min(max(start, self.num_exact), end)
        x = self._through(self._layers[start:inexact], x)
        with self._products(x):
            return self._through(self._layers[inexact:end], x)

    def _through(self, hidden: Sequence[HiddenLayer], x: Tensor) -> Tensor:
        for layer, norms in hidden:
            x = layer(x)
            if layer is self._layers[-1][0]:
                # before the activation, as in `fast.ArrayMLP`, by which the net acts
                x = restored(x)
            if self._norm_after and self._activation is not None:
                x = self._activation(x)
            for norm in norms:
                x = norm(restored(x))
            if not self._norm_after and self._activation is not None:
                x = self._activation(x)
        return x


def _linear(
    in_features: int, out_features: int, sigma: float | None
) -> layers.EmptyLinear:
    if sigma is None:
        return layers.EmptyLinear(in_features, out_features)
    return NoisyLinear(in_features, out_features, sigma)


class HydraMLPNet(nn.Module):
    """Hidden layers that all outputs share, then a multilayer perceptron for each
    output."""

    def __init__(self, trunk: MLPNet, tails: Sequence[MLPNet]) -> None:
        super().__init__()
        self.trunk = trunk
        self.tails = nn.ModuleList(tails)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per output."""
        features = self.trunk.features(obs)
        return tuple(tail(features)[0] for tail in self.tails)
