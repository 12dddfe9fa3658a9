"""Distributions over choices: one, several at once, and bits."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from slm_lab.agent.distribution.distribution import Distribution

ABSENT = -1e9
"""The logit of a choice that a component does not have: its mass is exactly zero, and so is
its share of an entropy, which −∞ would turn into NaN."""


def gumbel_max(log_p: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from logits (..., n) along the last axis: −log of an exponential variable is Gumbel."""
    exponential = torch.empty_like(log_p).exponential_(generator=generator)
    return (log_p - exponential.log_()).argmax(-1)


@final
class Categorical(Distribution):
    """Over n discrete actions, from logits (B, n)."""

    def __init__(self, logits: Tensor) -> None:
        self.log_p = logits.log_softmax(-1)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """(B,) int64."""
        return gumbel_max(self.log_p, generator)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """(B,) from action (B,) int64."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    @override
    def entropy(self) -> Tensor:
        """−Σ p log p, (B,)."""
        return -(self.log_p.exp() * self.log_p).sum(-1)

    @override
    def mode(self) -> Tensor:
        """(B,) int64."""
        return self.log_p.argmax(-1)


@final
class MultiCategorical(Distribution):
    """K independent choices among n_1, …, n_K, from their logits side by side, (B, Σ n_k)."""

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        widest = max(sizes)
        lead = logits.shape[:-1]
        if all(size == widest for size in sizes):
            padded = logits
        else:
            places = [k * widest + i for k, size in enumerate(sizes) for i in range(size)]
            padded = logits.new_full((*lead, len(sizes) * widest), ABSENT)
            padded[..., places] = logits
        self.log_p = padded.view(*lead, len(sizes), widest).log_softmax(-1)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, K) int64."""
        return gumbel_max(self.log_p, generator)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """Σ_k log p_k(a_k), (B,) from action (B, K) int64."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """−Σ_k Σ p_k log p_k, (B,)."""
        return -(self.log_p.exp() * self.log_p).sum((-2, -1))

    @override
    def mode(self) -> Tensor:
        """(B, K) int64."""
        return self.log_p.argmax(-1)


@final
class Bernoulli(Distribution):
    """A independent bits, from their logits (B, A)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A) int8."""
        uniform = torch.empty_like(self.logits).uniform_(generator=generator)
        return (uniform < self.logits.sigmoid()).to(torch.int8)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """Σ a l − log(1 + e^l), (B,) from action (B, A)."""
        return (action * self.logits - softplus(self.logits)).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """Σ log(1 + e^l) − l σ(l), (B,)."""
        return (softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)

    @override
    def mode(self) -> Tensor:
        """(B, A) int8."""
        return (self.logits > 0).to(torch.int8)
