"""The multilayer perceptron."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from slm_lab.agent.net.activation import Activation, activation_function
from slm_lab.agent.net.init import Norm, hidden_gain, init_linear, init_norm
from slm_lab.spec.schema.net import MLPNetSpec


class MLPNet(nn.Module):
    """Hidden layers (linear, norm, activation) and one linear head per output.

    The layers are applied as functions: calling a module costs more than a small matrix product.
    """

    def __init__(
        self,
        spec: MLPNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if len(obs_shape) != 1:
            raise ValueError(f"MLPNet takes observations of shape (D,), not {obs_shape}")
        widths = [obs_shape[0], *spec.hid_layers]
        pairs = list(pairwise(widths))
        self.hidden = nn.ModuleList([_empty_linear(i, o) for i, o in pairs])
        self.norms = nn.ModuleList([n for w in spec.hid_layers for n in _norms(spec, w)])
        self.heads = nn.ModuleList([_empty_linear(widths[-1], d) for d in head_dims])
        gain = hidden_gain(spec.hid_layers_activation)
        for layer in self.hidden:
            _init(layer, spec.init_fn, gain, generator)
        for norm in self.norms:
            init_norm(norm)  # type: ignore[arg-type]
        for head, head_gain in zip(self.heads, head_gains, strict=True):
            _init(head, spec.init_fn, head_gain, generator)
        self._activation = activation_function(spec.hid_layers_activation)
        self._out_activations = _out_activations(spec.out_layer_activation, len(head_dims))
        per_layer = len(self.norms) // max(len(pairs), 1)
        # Plain lists: attribute look-ups on modules cost as much as the small products themselves.
        self._layers = [
            (*_weights(layer), list(self.norms)[i * per_layer : (i + 1) * per_layer])
            for i, layer in enumerate(self.hidden)
        ]
        self._head_weights = [_weights(head) for head in self.heads]

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per head."""
        x = obs
        activation = self._activation
        for weight, bias, norms in self._layers:
            x = F.linear(x, weight, bias)
            for norm in norms:
                x = norm(x)
            if activation is not None:
                x = activation(x)
        outputs = []
        for (weight, bias), out_activation in zip(
            self._head_weights, self._out_activations, strict=True
        ):
            out = F.linear(x, weight, bias)
            outputs.append(out if out_activation is None else out_activation(out))
        return tuple(outputs)


def _empty_linear(in_features: int, out_features: int) -> nn.Linear:
    layer = nn.Linear(in_features, out_features, device="meta")
    return layer.to_empty(device="cpu")


def _weights(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias


def _init(layer: nn.Module, init_fn: str | None, gain: float, generator: torch.Generator) -> None:
    assert isinstance(layer, nn.Linear)
    init_linear(layer, init_fn, gain, generator)


def _norms(spec: MLPNetSpec, width: int) -> list[Norm]:
    norms: list[Norm] = []
    if spec.batch_norm:
        norms.append(nn.BatchNorm1d(width))
    if spec.layer_norm:
        norms.append(nn.LayerNorm(width))
    return norms


def _out_activations(
    names: str | Sequence[str | None] | None, num_heads: int
) -> list[Activation | None]:
    listed = [names] * num_heads if names is None or isinstance(names, str) else list(names)
    if len(listed) != num_heads:
        raise ValueError(
            f"out_layer_activation names {len(listed)} activations, the network has "
            f"{num_heads} heads"
        )
    return [activation_function(name) for name in listed]
