"""What a Q-network predicts of the return of an action: its distribution."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.device import moved
from slm_lab.agent.net.body import BodyNet
from slm_lab.agent.net.dueling import DuelingNet
from slm_lab.agent.net.layers import EmptyLinear, init_linear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.parts import EncodedNet


class ReturnDistribution(ABC):
    """How K outputs of a network describe the distribution of the return of one
    action."""

    size: int
    """K, the number of outputs for one action."""

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """Q, the expected return: (..., K) to (...)."""

    @abstractmethod
    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """What the distribution of r + γ^m Z should be, (B, K), without a gradient. It
        follows from rewards and discounts (B,), and the outputs (B, K) for Z in the
        next state."""

    @abstractmethod
    def loss(
        self, outputs: Tensor, target: Tensor, levels: Tensor | None = None
    ) -> Tensor:
        """The loss of outputs (B, K) against a target (B, M), (B,). `levels` (B, K) are
        the probabilities τ of quantiles that a network put out for them."""


@final
class CategoricalReturn(ReturnDistribution):
    """Logits of K values z_i at equal distances: C51, arXiv:1707.06887."""

    def __init__(self, size: int, low: float, high: float) -> None:
        self.size = size
        self._low = low
        self._high = high
        values = torch.linspace(low, high, size)
        self._values = cache(lambda device: moved(values, device))

    @override
    def mean(self, outputs: Tensor) -> Tensor:
        """Σ_i p_i z_i."""
        return outputs.softmax(-1) @ self._values(outputs.device)

    @override
    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """The projection of r + γ z_j onto the values z_i: algorithm 1. The mass of a
        value is shared by its two neighbours: the nearer one gets more."""
        values = self._values(outputs.device)
        moved_values = reward.unsqueeze(-1) + discount.unsqueeze(-1) * values
        moved_values = moved_values.clamp(self._low, self._high)
        step = (self._high - self._low) / (self.size - 1)
        # (B, i, j): how far z_i is from the value that z_j moves to, in steps
        apart = (moved_values.unsqueeze(-2) - values.unsqueeze(-1)).abs() / step
        shares = (1 - apart).clamp(min=0.0)
        projected: Tensor = (shares * outputs.softmax(-1).unsqueeze(-2)).sum(-1)
        return projected

    @override
    def loss(
        self, outputs: Tensor, target: Tensor, levels: Tensor | None = None
    ) -> Tensor:
        """Cross-entropy."""
        return -(target * outputs.log_softmax(-1)).sum(-1)


@final
class QuantileReturn(ReturnDistribution):
    """Quantiles at τ_i = (i + ½) / K: QR-DQN, arXiv:1710.10044; or at levels that are
    drawn: IQN, arXiv:1806.06923."""

    def __init__(self, size: int, kappa: float) -> None:
        self.size = size
        self.kappa = kappa
        levels = (torch.arange(size) + 0.5) / size
        self.levels = cache(lambda device: moved(levels, device))
        """τ_i on a device, (K,)."""

    @override
    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    @override
    def target(self, reward: Tensor, discount: Tensor, outputs: Tensor) -> Tensor:
        """r + γ θ_j."""
        return reward.unsqueeze(-1) + discount.unsqueeze(-1) * outputs

    @override
    def loss(
        self, outputs: Tensor, target: Tensor, levels: Tensor | None = None
    ) -> Tensor:
        """Quantile Huber loss, Σ_i E_j |τ_i − [u < 0]| L_κ(u) / κ with u = T_j − θ_i:
        eq. 10 and algorithm 1, and eq. 3 of arXiv:1806.06923. For κ = 0 it is the
        quantile loss itself, without the Huber part."""
        if levels is None:
            levels = self.levels(outputs.device)
        return quantile_loss(outputs, levels, target, self.kappa)


def quantile_loss(
    quantiles: Tensor, levels: Tensor, target: Tensor, kappa: float
) -> Tensor:
    """Σ_i E_j |τ_i − [u_ij < 0]| L_κ(u_ij) / κ with u_ij = T_j − θ_i, (B,). The
    arguments are quantiles θ (B, K), their levels τ (K,) or (B, K), and samples T
    (B, M)."""
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)  # (B, K, M)
    size = error.abs()
    if kappa > 0:
        quadratic = error.square() / (2 * kappa)
        size = torch.where(size <= kappa, quadratic, size - kappa / 2)
    weight = (levels.unsqueeze(-1) - (error.detach() < 0).to(levels.dtype)).abs()
    return (weight * size).mean(-1).sum(-1)


def truncated(quantiles: Sequence[Tensor], dropped: int) -> Tensor:
    """The mixture of several critics' distributions without its right tail, eq. 10 of
    arXiv:2005.04269. It has the quantiles (B, K) of N critics in ascending order. The
    N ⋅ `dropped` largest are left out: (B, N (K − dropped))."""
    pooled = torch.cat(tuple(quantiles), -1).sort(-1).values
    return pooled[:, : pooled.shape[-1] - len(quantiles) * dropped]


class ReturnNet(nn.Module, ABC):
    """Predicts the distribution of the return of each of n actions."""

    @abstractmethod
    def distributions(self, obs: Tensor, levels: Tensor | None = None) -> Tensor:
        """(B, *obs_shape) to the outputs of each action, (B, n, K). `levels` (B, K) are
        the probabilities τ of the quantiles that are asked for; None asks for the
        usual outputs."""

    @override
    @abstractmethod
    def forward(self, obs: Tensor) -> tuple[Tensor]:
        """(B, *obs_shape) to Q of each action, (B, n)."""


@final
class ReturnHead(ReturnNet):
    """A net with outputs for the distribution of the return of each of n actions."""

    def __init__(self, net: nn.Module, returns: ReturnDistribution) -> None:
        super().__init__()
        self.net = net
        self.returns = returns

    @override
    def distributions(self, obs: Tensor, levels: Tensor | None = None) -> Tensor:
        return self.action_outputs(obs)

    def action_outputs(self, *inputs: Tensor) -> Tensor:
        """The inputs of the net to the outputs of each action, (B, n, K)."""
        return self._split_by_action(self.net(*inputs)[0])

    def means(self, outputs: Tensor) -> Tensor:
        """Outputs of the net (B, n K) to Q of each action, (B, n)."""
        return self.returns.mean(self._split_by_action(outputs))

    @override
    def forward(self, obs: Tensor, *action: Tensor) -> tuple[Tensor]:
        return (self.means(self.net(obs, *action)[0]),)

    def _split_by_action(self, outputs: Tensor) -> Tensor:
        return outputs.view(*outputs.shape[:-1], -1, self.returns.size)


SplitNet: TypeAlias = MLPNet | BodyNet | DuelingNet | EncodedNet
"""A net that computes an embedding of the observation, and its outputs from it."""


def cosines(levels: Tensor, size: int) -> Tensor:
    """cos(π i τ) for i = 0, …, size − 1, eq. 4 of arXiv:1806.06923: (B, N) to
    (B, N, size)."""
    multiples = math.pi * torch.arange(size, device=levels.device)
    return torch.cos(levels.unsqueeze(-1) * multiples)


@final
class ImplicitReturnNet(ReturnNet):
    """Quantiles of the return of each action at any levels: f(ψ(s) ⊙ φ(τ)) of
    arXiv:1806.06923. ψ and f are the two parts of a net with an output for each
    action. φ is a linear layer with ReLU over cosines of τ. Without levels it puts out
    the quantiles at K midpoints, so that Q is the same in every call."""

    def __init__(
        self,
        net: SplitNet,
        returns: QuantileReturn,
        num_cosines: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.net = net
        self.embedding = EmptyLinear(num_cosines, net.embedded_width)
        init_linear(self.embedding, None, 1.0, generator)
        self._returns = returns

    @override
    def distributions(self, obs: Tensor, levels: Tensor | None = None) -> Tensor:
        state = self.net.embed(obs)
        if levels is None:
            levels = self._returns.levels(state.device).unsqueeze(0)
        of_levels = self.embedding(cosines(levels, self.embedding.in_features)).relu()
        both = state.unsqueeze(1) * of_levels  # (B, K, W)
        (quantiles,) = self.net.from_embedding(both.flatten(0, 1))
        return quantiles.view(*both.shape[:2], -1).transpose(1, 2)

    @override
    def forward(self, obs: Tensor) -> tuple[Tensor]:
        return (self._returns.mean(self.distributions(obs)),)


def outputs_of(outputs: Tensor, action: Tensor) -> Tensor:
    """The outputs (B, K) of actions (B,) among the outputs of all, (B, n, K)."""
    index = action[:, None, None].expand(-1, 1, outputs.shape[-1])
    return outputs.gather(1, index).squeeze(1)
