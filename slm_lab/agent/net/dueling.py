"""Nets that split Q into a value and an advantage of each action."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from slm_lab.agent.net.acting import ArrayNet
from slm_lab.agent.net.conv import ConvNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray
from slm_lab.spec.schema.net import DuelingConvNetSpec, DuelingMLPNetSpec, NetSpec


def dueling_q(value: Tensor, advantage: Tensor) -> Tensor:
    """Q = V + A − mean_a A, eq. 9 of arXiv:1511.06581. (B, 1) and (B, n) to (B, n)."""
    return value + advantage - advantage.mean(-1, keepdim=True)


@final
class DuelingMLPNet(nn.Module, ArrayNet):
    """A multilayer perceptron with a head for the value and one for the advantages."""

    def __init__(
        self,
        spec: DuelingMLPNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float | None],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        dims, gains = _two_heads(spec, head_dims, head_gains)
        self.streams = MLPNet(spec, obs_shape, dims, gains, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """(B, D) to one (B, n)."""
        return (dueling_q(*self.streams(obs)),)

    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """See `ArrayNet`."""
        outputs = self.streams.forward_array(obs)
        if outputs is None:
            return None
        value, advantage = outputs
        return (value + advantage - advantage.mean(-1, keepdims=True),)


@final
class DuelingConvNet(nn.Module):
    """A ConvNet with a head for the value and one for the advantages."""

    def __init__(
        self,
        spec: DuelingConvNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float | None],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        dims, gains = _two_heads(spec, head_dims, head_gains)
        self.streams = ConvNet(spec, obs_shape, dims, gains, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """(B, C, H, W) to one (B, n)."""
        return (dueling_q(*self.streams(obs)),)


def _two_heads(
    spec: NetSpec, head_dims: Sequence[int], head_gains: Sequence[float | None]
) -> tuple[list[int], list[float | None]]:
    """Widths and gains of the two streams that the one output is made of."""
    if len(head_dims) != 1:
        raise LabError(f"agent.net.type = {spec.type}: has one output, the Q of each action")
    (num_actions,), (gain,) = head_dims, head_gains
    return [1, num_actions], [gain, gain]
