"""Linear layers whose weights are noisy, so that a network explores by itself."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from slm_lab.agent.net.layers import EmptyLinear


@final
class NoisyLinear(EmptyLinear):
    """y = (μ + σ ∘ ε) x with learned μ and σ, eq. 8 and 9 of arXiv:1706.10295. The
    noise of a weight is the product of two numbers, ε_ji = f(ε_j) f(ε_i); that of a
    bias is f(ε_j). Without noise (`noise` is None) the layer computes with the means μ
    alone."""

    def __init__(self, in_features: int, out_features: int, sigma: float) -> None:
        super().__init__(in_features, out_features)
        self.sigma_weight = nn.Parameter(torch.empty(out_features, in_features))
        self.sigma_bias = nn.Parameter(torch.empty(out_features))
        start = sigma / math.sqrt(in_features)
        nn.init.constant_(self.sigma_weight, start)
        nn.init.constant_(self.sigma_bias, start)
        self.noise: Tensor | None = None
        """(R, in + out): f(ε) of inputs and outputs, the same for each R-th part of a
        batch."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(B, in) to (B, out)."""
        mean = super().forward(x)
        if self.noise is None:
            return mean
        of_inputs = self.noise[:, None, : self.in_features]
        of_outputs = self.noise[:, None, self.in_features :]
        groups = x.reshape(len(self.noise), -1, self.in_features)  # (R, B / R, in)
        noisy = linear(groups * of_inputs, self.sigma_weight, self.sigma_bias)
        return mean + (noisy * of_outputs).flatten(0, 1)


def factor(normal: Tensor) -> Tensor:
    """f(x) = sgn(x) √|x|, which makes factorised noise of normal numbers."""
    return normal.sign() * normal.abs().sqrt()


@final
class WeightNoise:
    """The noise of all noisy layers of a network."""

    def __init__(self, net: nn.Module) -> None:
        self._layers = [m for m in net.modules() if isinstance(m, NoisyLinear)]
        self._sizes = [layer.in_features + layer.out_features for layer in self._layers]

    def __bool__(self) -> bool:
        """Whether the network has noisy layers."""
        return len(self._layers) > 0

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """New noise for so many equal parts of a batch, (rows, numbers of all
        layers)."""
        return factor(torch.randn(rows, sum(self._sizes), generator=generator))

    @contextmanager
    def applied(self, noise: Tensor | None) -> Iterator[None]:
        """Within, the layers compute with this noise; outside with their means. None
        changes nothing."""
        if noise is None:
            yield
            return
        parts = torch.split(noise, self._sizes, -1)
        for layer, part in zip(self._layers, parts, strict=True):
            layer.noise = part
        try:
            yield
        finally:
            for layer in self._layers:
                layer.noise = None
