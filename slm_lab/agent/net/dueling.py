"""Nets that split Q into a value and an advantage of each action."""

from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.conv import ConvNet
from slm_lab.agent.net.layers import Head, Heads
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.core.errors import LabError
from slm_lab.core.types import Shape
from slm_lab.spec.schema.net import DuelingConvNetSpec, DuelingMLPNetSpec


def dueling_q(value: Tensor, advantage: Tensor) -> Tensor:
    """Q = V + A − mean_a A, eq. 9 of arXiv:1511.06581. (B, 1) and (B, n) to (B, n)."""
    return value + advantage - advantage.mean(-1, keepdim=True)


@final
class DuelingNet(nn.Module):
    """An MLPNet, or a ConvNet, with a head for the value and one for the advantages."""

    def __init__(
        self,
        spec: DuelingMLPNetSpec | DuelingConvNetSpec,
        obs_shape: Shape,
        heads: Heads,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if len(heads) != 1:
            raise LabError(
                f"agent.net.type = {spec.type}: has one output, the Q of each action"
            )
        both = [Head(1, heads[0].gain), *heads]  # V, and A
        self.streams: MLPNet | ConvNet
        if isinstance(spec, DuelingConvNetSpec):
            self.streams = ConvNet(spec, obs_shape, both, generator)
        else:
            self.streams = MLPNet(spec, obs_shape, both, generator)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """(B, *obs_shape) to one (B, n)."""
        return (dueling_q(*self.streams(obs)),)
