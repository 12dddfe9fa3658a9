"""A multilayer perceptron whose layers add to what they are given
(arXiv:1512.03385)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.net.layers import (
    EmptyLinear,
    Heads,
    activation_function,
    hidden_gain,
    init_heads,
    init_linear,
)
from slm_lab.core.types import Shape
from slm_lab.spec.schema.fields import Int
from slm_lab.spec.schema.net import NetSpec


class ResidualMLPSpec(NetSpec):
    """Fully connected layers, each added to its input."""

    num_blocks: Int = Field(2, ge=1, description="residual layers")
    width: Int = Field(64, ge=1, description="units of every layer")
    # Keys of every net that this one does not build: refused, rather than without
    # effect.
    layer_norm: Literal[False] = Field(False, description="not for ResidualMLP")
    batch_norm: Literal[False] = Field(False, description="not for ResidualMLP")
    out_layer_activation: Literal[None] = Field(None, description="not for ResidualMLP")


class ResidualMLP(nn.Module):
    """x ← x + f(W x + b), `num_blocks` times, between a first layer and one linear head
    per output.

    Weights are drawn from `generator` only: `EmptyLinear` leaves torch's global one
    alone. Once this constructor has run they become views of one flat vector, so no
    copy of them is kept.
    """

    Params: ClassVar[type[NetSpec]] = ResidualMLPSpec

    def __init__(
        self,
        spec: ResidualMLPSpec,
        obs_shape: Shape,
        heads: Heads,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        (obs_dim,) = obs_shape
        width, gain = spec.width, hidden_gain(spec.hid_layers_activation)
        self.first = EmptyLinear(obs_dim, width)
        self.blocks = nn.ModuleList(
            [EmptyLinear(width, width) for _ in range(spec.num_blocks)]
        )
        self.heads = nn.ModuleList([EmptyLinear(width, head.dim) for head in heads])
        for layer in (self.first, *self.blocks):
            init_linear(layer, spec.init_fn, gain, generator)
        init_heads(self.heads, heads, spec.init_fn, generator)
        self.activation = activation_function(spec.hid_layers_activation)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per head."""
        x = self.activation(self.first(obs))
        for block in self.blocks:
            x = x + self.activation(block(x))
        return tuple(head(x) for head in self.heads)
