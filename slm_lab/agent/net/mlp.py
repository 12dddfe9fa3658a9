"""The multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Self, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.precision import products, restored
from slm_lab.core.errors import LabError
from slm_lab.core.types import Shape
from slm_lab.spec.checks.observations import no_vector
from slm_lab.spec.schema.net import MLPNetSpec, NetSpec

HiddenLayer: TypeAlias = tuple[layers.EmptyLinear, list[layers.Norm]]
"""A linear layer and the norms around its activation."""


class MLPNet(nn.Module):
    """Hidden layers (linear, norm, activation) and one linear head per output.

    With `norm_place` "after" a layer is linear, activation, norm, and batch
    normalisation of the input precedes them: the placement of CrossQ's authors. A part
    of a net whose input are another part's features (`sees_obs` False) does not
    normalise it again."""

    without_gradient: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    """A faster `forward` for calls without a gradient; None if there is none."""

    def __init__(
        self,
        spec: MLPNetSpec,
        obs_shape: Shape,
        heads: layers.Heads,
        generator: torch.Generator,
        sees_obs: bool = True,
    ) -> None:
        super().__init__()
        if (error_line := no_vector(spec.type, obs_shape)) is not None:
            raise LabError(f"agent.net.type = {spec.type}: {error_line}")
        widths = [obs_shape[0], *spec.hid_layers]
        hidden = [layers.EmptyLinear(i, o) for i, o in pairwise(widths)]
        outputs = [layers.EmptyLinear(widths[-1], head.dim) for head in heads]
        self._norm_after = spec.norm_place == "after"
        first: list[layers.Norm] = []
        if self._norm_after and sees_obs:
            first = _norms(spec.model_copy(update={"layer_norm": False}), widths[0])
        norms = [_norms(spec, width) for width in spec.hid_layers]
        self.hidden = nn.ModuleList(hidden)
        self.norms = nn.ModuleList([*first, *chain.from_iterable(norms)])
        self.heads = nn.ModuleList(outputs)
        self._input_norms = tuple(first)
        self._layers = tuple(zip(hidden, norms, strict=True))
        gain = layers.hidden_gain(spec.hid_layers_activation)
        for layer in hidden:
            layers.init_linear(layer, spec.init_fn, gain, generator)
        layers.init_heads(outputs, heads, spec.init_fn, generator)
        self._activation = layers.activation_function(spec.hid_layers_activation)
        names = per_head(spec.out_layer_activation, len(heads))
        self._out_activations = [layers.activation_function(name) for name in names]
        self.out_acts = nn.ModuleList(
            f for f in self._out_activations if isinstance(f, nn.Module)
        )
        self._products = products(spec)
        self.num_exact = 1 if sees_obs else 0
        """The first layers, which multiply in float32."""
        self.is_half = spec.precision == "bf16"
        self.by_numpy = spec.matmul == "numpy" and not self.is_half
        for layer in hidden:
            layer.by_numpy = self.by_numpy
        self._has_modes = len(self.norms) > 0
        self.is_plain = not self._has_modes and not any(self._out_activations)
        """Whether it is a stack of linear layers with one activation between them."""

    @property
    def activation(self) -> layers.Activation | None:
        """The activation of the hidden layers."""
        return self._activation

    @override
    def train(self, mode: bool = True) -> Self:
        """A net of plain layers has no modes, and walking through the layers takes 30
        µs."""
        return super().train(mode) if self._has_modes else self

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per head."""
        obs = layers.as_floats(obs)
        is_real = not torch.is_grad_enabled() and not torch.compiler.is_exporting()
        if self.without_gradient is not None and is_real:
            return self.without_gradient(obs)
        features = self.features(obs)
        outputs = tuple(head(features) for head in self.heads)
        if not any(self._out_activations):
            return outputs
        pairs = zip(outputs, self._out_activations, strict=True)
        return tuple(out if f is None else f(out) for out, f in pairs)

    def compute_weights(self) -> None:
        """Notes that the weights are computed, not stored."""
        self.is_plain, self._has_modes = False, True

    def features(self, obs: Tensor) -> Tensor:
        """(B, D) to the output of the last hidden layer, (B, width), layer by layer."""
        x = obs
        for norm in self._input_norms:
            x = norm(x)
        x = self._through(self._layers[: self.num_exact], x)
        with self._products(x):
            return self._through(self._layers[self.num_exact :], x)

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


def as_mlp(spec: NetSpec, hid_layers: Sequence[int]) -> MLPNetSpec:
    """The keys of every net in `spec`, for a multilayer perceptron as a part of that
    net."""
    return MLPNetSpec(
        type=spec.type,
        hid_layers=tuple(hid_layers),
        hid_layers_activation=spec.hid_layers_activation,
        out_layer_activation=spec.out_layer_activation,
        init_fn=spec.init_fn,
        layer_norm=spec.layer_norm,
        batch_norm=spec.batch_norm,
        norm_place=spec.norm_place,
        precision=spec.precision,
        matmul=spec.matmul,
    )


def _norms(spec: MLPNetSpec, width: int) -> list[layers.Norm]:
    return layers.norm_layers(spec, width, nn.BatchNorm1d, nn.LayerNorm)


def per_head(
    names: str | Sequence[str | None] | None, num_heads: int
) -> list[str | None]:
    """The activation of each head. Raises LabError if there are more or fewer."""
    listed = (
        [names] * num_heads if names is None or isinstance(names, str) else list(names)
    )
    if len(listed) != num_heads:
        raise LabError(
            f"agent.net.out_layer_activation: names {len(listed)} activations, the "
            f"network has {num_heads} heads"
        )
    return listed
