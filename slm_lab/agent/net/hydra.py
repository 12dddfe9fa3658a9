"""A net with hidden layers for each output."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.layers import as_floats
from slm_lab.agent.net.mlp import MLPNet


@final
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
        features = self.trunk.features(as_floats(obs))
        return tuple(tail(features)[0] for tail in self.tails)
