"""A net with hidden layers for each output."""

from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.layers import Heads, as_floats
from slm_lab.agent.net.mlp import MLPNet, as_mlp, per_head
from slm_lab.core.errors import LabError
from slm_lab.core.types import Shape
from slm_lab.spec.checks.nets import wrong_tails
from slm_lab.spec.schema.net import HydraMLPNetSpec


@final
class HydraMLPNet(nn.Module):
    """Hidden layers that all outputs share, then a multilayer perceptron for each
    output."""

    def __init__(
        self,
        spec: HydraMLPNetSpec,
        obs_shape: Shape,
        heads: Heads,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        trunk, stacks, num_outputs = spec.trunk(), spec.tails(), len(heads)
        if (error_line := wrong_tails(spec, num_outputs)) is not None:
            raise LabError(f"agent.net.hid_layers.2: {error_line}")
        stacks = stacks * num_outputs if len(stacks) == 1 else stacks
        plain = as_mlp(spec, trunk).model_copy(update={"out_layer_activation": None})
        self.trunk = MLPNet(plain, obs_shape, (), generator, sees_obs=bool(trunk))
        features = trunk[-1:] or obs_shape
        self.tails = nn.ModuleList()
        activations = per_head(spec.out_layer_activation, num_outputs)
        for stack, name, head in zip(stacks, activations, heads, strict=True):
            own = as_mlp(spec, stack).model_copy(update={"out_layer_activation": name})
            tail = MLPNet(own, features, [head], generator, sees_obs=not trunk)
            self.tails.append(tail)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, D) to one (B, head_dim) per output."""
        features = self.trunk.features(as_floats(obs))
        return tuple(tail(features)[0] for tail in self.tails)
