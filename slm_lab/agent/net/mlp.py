"""The multilayer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.fast_mlp import KERNELS, ArrayMLP, ArrayNet, MLPFunction, mlp_forward
from slm_lab.agent.net.layers import (
    BatchRenorm,
    EmptyLinear,
    Norm,
    activation_function,
    as_floats,
    hidden_gain,
    init_linear,
    init_norm,
)
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray
from slm_lab.spec.checks.observations import no_vector
from slm_lab.spec.schema.net import MLPNetSpec, NetSpec
from slm_lab.spec.torch_table import activation_class


class MLPNet(nn.Module, ArrayNet):
    """Hidden layers (linear, norm, activation) and one linear head per output.

    With `norm_place` "after" a layer is linear, activation, norm, and batch normalisation of the
    input comes first: the placement of CrossQ's authors. A part of a net whose input has come
    through a normalised layer already does not normalise it again (`normalizes_input` False).

    Where it is a plain stack of linear layers and a common activation it runs as one node of the
    autograd graph, see `mlp_function`, and acts by NumPy, see `array_mlp`.
    """

    def __init__(
        self,
        spec: MLPNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float | None],
        generator: torch.Generator,
        normalizes_input: bool = True,
    ) -> None:
        super().__init__()
        if (error_line := no_vector(spec.type, obs_shape)) is not None:
            raise LabError(f"agent.net.type = {spec.type}: {error_line}")
        widths = [obs_shape[0], *spec.hid_layers]
        pairs = list(pairwise(widths))
        self.hidden = nn.ModuleList([EmptyLinear(i, o) for i, o in pairs])
        self._norm_after = spec.norm_place == "after"
        first: list[Norm] = []
        if self._norm_after and normalizes_input:
            first = _norms(spec.model_copy(update={"layer_norm": False}), widths[0])
        self._num_first = len(first)
        """How many of the norms are of the input."""
        self.norms = nn.ModuleList(first + [n for w in spec.hid_layers for n in _norms(spec, w)])
        self.heads = nn.ModuleList([EmptyLinear(widths[-1], d) for d in head_dims])
        gain = hidden_gain(spec.hid_layers_activation)
        for layer in self.hidden:
            _init(layer, spec.init_fn, gain, generator)
        for norm in self.norms:
            init_norm(norm)  # type: ignore[arg-type]
        for head, head_gain in zip(self.heads, head_gains, strict=True):
            if head_gain is None:
                _init(head, spec.init_fn, 1.0, generator)
            else:
                _init(head, "orthogonal_", head_gain, generator)
        self._activation = activation_function(spec.hid_layers_activation)
        names = per_head(spec.out_layer_activation, len(head_dims))
        self._out_activations = [activation_function(name) for name in names]
        self._has_out_activation = any(f is not None for f in self._out_activations)
        # A plain tuple: attribute look-ups on modules cost as much as the small products.
        self._parameters_in_order = tuple(
            p for layer in [*self.hidden, *self.heads] for p in _weights(layer)
        )
        self._kernel = KERNELS.get(activation_class(spec.hid_layers_activation or "") or "")
        if len(self.norms):
            self._kernel = None
        self._by_array: ArrayMLP | None = None
        if self._kernel is not None and not self._has_out_activation:
            self._by_array = ArrayMLP(
                self._kernel.apply_array, len(self.hidden), self._parameters_in_order
            )

    @override
    def train(self, mode: bool = True) -> Self:
        """Without normalisation the modes are one, and walking through the layers takes 30 µs."""
        return super().train(mode) if len(self.norms) else self

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per head."""
        obs = as_floats(obs)
        if self._kernel is None:
            outputs = self._layer_by_layer(obs)
        elif torch.is_grad_enabled():
            outputs = MLPFunction.apply(  # type: ignore[no-untyped-call]
                self._kernel, len(self.hidden), obs, *self._parameters_in_order
            )
        else:
            _, outputs = mlp_forward(self._kernel, len(self.hidden), obs, self._parameters_in_order)
        if not self._has_out_activation:
            return outputs
        pairs = zip(outputs, self._out_activations, strict=True)
        return tuple(out if f is None else f(out) for out, f in pairs)

    @override
    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        return None if self._by_array is None else self._by_array.forward(obs)

    def use_layers(self) -> None:
        """Gives up the single node: for layers whose weights are computed, not stored."""
        self._kernel = self._by_array = None

    def _layer_by_layer(self, obs: Tensor) -> tuple[Tensor, ...]:
        """The same by autograd: any activation, with or without normalisation layers."""
        x = self.features(obs)
        return tuple(head(x) for head in self.heads)

    def features(self, obs: Tensor) -> Tensor:
        """(B, D) to what the last hidden layer puts out, (B, width), layer by layer."""
        x = obs
        first = self._num_first
        for norm in self.norms[:first]:
            x = norm(x)
        per_layer = (len(self.norms) - first) // max(len(self.hidden), 1)
        for index, layer in enumerate(self.hidden):
            x = layer(x)
            norms = self.norms[first + index * per_layer : first + (index + 1) * per_layer]
            if self._norm_after and self._activation is not None:
                x = self._activation(x)
            for norm in norms:
                x = norm(x)
            if not self._norm_after and self._activation is not None:
                x = self._activation(x)
        return x


def as_mlp(spec: NetSpec, hid_layers: Sequence[int]) -> MLPNetSpec:
    """The keys of every net in `spec`, for a multilayer perceptron that is a part of that net."""
    return MLPNetSpec(
        type=spec.type,
        hid_layers=tuple(hid_layers),
        hid_layers_activation=spec.hid_layers_activation,
        out_layer_activation=spec.out_layer_activation,
        init_fn=spec.init_fn,
        layer_norm=spec.layer_norm,
        batch_norm=spec.batch_norm,
        norm_place=spec.norm_place,
    )


def _weights(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias


def _init(layer: nn.Module, init_fn: str | None, gain: float, generator: torch.Generator) -> None:
    assert isinstance(layer, nn.Linear)
    init_linear(layer, init_fn, gain, generator)


def _norms(spec: MLPNetSpec, width: int) -> list[Norm]:
    norms: list[Norm] = []
    if spec.batch_norm == "renorm":
        norms.append(BatchRenorm(width))
    elif spec.batch_norm:
        norms.append(nn.BatchNorm1d(width))
    if spec.layer_norm:
        norms.append(nn.LayerNorm(width))
    return norms


def per_head(names: str | Sequence[str | None] | None, num_heads: int) -> list[str | None]:
    """The activation of each head; raises LabError where they are more or fewer."""
    listed = [names] * num_heads if names is None or isinstance(names, str) else list(names)
    if len(listed) != num_heads:
        raise LabError(
            f"agent.net.out_layer_activation: names {len(listed)} activations, the network has "
            f"{num_heads} heads"
        )
    return listed
