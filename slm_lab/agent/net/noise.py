"""Layers with noise, which is drawn outside of them: noisy weights, so that a network
explores by itself, and dropout."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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
    noise of a weight is the product of two numbers, ε_ji = f(ε_j) f(ε_i). The noise of
    a bias is f(ε_j). Without noise (`noise` is None) the layer computes with the means
    μ alone."""

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
class Dropout(nn.Module):
    """Sets some outputs of a layer to zero, and divides the others by the share that is
    kept (arXiv:1207.0580). Without a mask (`noise` is None) it changes nothing, in
    training mode too."""

    def __init__(self, width: int, probability: float) -> None:
        super().__init__()
        self.width = width
        self.kept = 1.0 - probability
        """The share of outputs that are not set to zero."""
        self.noise: Tensor | None = None
        """(B, width): whether an output is kept."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(B, width) to the same."""
        if self.noise is None:
            return x
        return x * (self.noise / self.kept)


class LayerNoise(ABC):
    """The noise of some layers of a network."""

    def __init__(
        self, layers: Sequence[NoisyLinear | Dropout], sizes: Sequence[int]
    ) -> None:
        self._layers = layers
        self._sizes = sizes

    def __bool__(self) -> bool:
        """Whether the network has such layers."""
        return len(self._layers) > 0

    @abstractmethod
    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """New noise for so many equal parts of a batch, (rows, numbers of all
        layers)."""

    @contextmanager
    def applied(self, noise: Tensor | None) -> Iterator[None]:
        """Inside this context the layers compute with this noise, outside without. None
        changes nothing."""
        if noise is None:
            yield
            return
        parts = torch.split(noise, list(self._sizes), -1)
        for layer, part in zip(self._layers, parts, strict=True):
            layer.noise = part
        try:
            yield
        finally:
            for layer in self._layers:
                layer.noise = None


@final
class WeightNoise(LayerNoise):
    """The noise of all noisy layers of a network. Without it they compute with their
    means."""

    def __init__(self, net: nn.Module) -> None:
        layers = [m for m in net.modules() if isinstance(m, NoisyLinear)]
        sizes = [layer.in_features + layer.out_features for layer in layers]
        super().__init__(layers, sizes)

    @override
    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        return factor(torch.randn(rows, sum(self._sizes), generator=generator))


@final
class DropoutMasks(LayerNoise):
    """The masks of all layers of dropout in networks, each sample its own. All have the
    same probability."""

    def __init__(self, nets: nn.Module) -> None:
        layers = [m for m in nets.modules() if isinstance(m, Dropout)]
        super().__init__(layers, [layer.width for layer in layers])
        self._kept = min((layer.kept for layer in layers), default=1.0)

    @override
    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        masks = torch.empty(rows, sum(self._sizes), dtype=torch.bool)
        return masks.bernoulli_(self._kept, generator=generator)
