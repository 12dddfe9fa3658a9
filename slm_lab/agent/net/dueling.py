"""Nets that split Q into a value and an advantage of each action."""

from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.body import BodyNet
from slm_lab.agent.net.mlp import MLPNet


def dueling_q(value: Tensor, advantage: Tensor) -> Tensor:
    """Q = V + A − mean_a A, eq. 9 of arXiv:1511.06581. (B, 1) and (B, n) to (B, n). Of
    K outputs for each action each is combined alone: (B, K) and (B, n K) to
    (B, n K)."""
    size = value.shape[-1]
    if size == 1:
        return value + advantage - advantage.mean(-1, keepdim=True)
    of_actions = advantage.view(*advantage.shape[:-1], -1, size)
    centred = of_actions - of_actions.mean(-2, keepdim=True)
    return (value.unsqueeze(-2) + centred).flatten(-2)


class DuelingNet(nn.Module):
    """Q from `streams`, a net with a head for the value and one for the advantages."""

    def __init__(self, streams: MLPNet | BodyNet) -> None:
        super().__init__()
        self.streams = streams

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """(B, *obs_shape) to one (B, n), or (B, n K)."""
        return (dueling_q(*self.streams(obs)),)

    @property
    def embedded_width(self) -> int:
        """The numbers of `embed`."""
        return self.streams.embedded_width

    def embed(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) to the features that both streams share, (B, W)."""
        return self.streams.embed(obs)

    def from_embedding(self, x: Tensor) -> tuple[Tensor]:
        """What `embed` puts out, (B, W), to one (B, n), or (B, n K)."""
        return (dueling_q(*self.streams.from_embedding(x)),)
