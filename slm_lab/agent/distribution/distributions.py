"""Action distributions that draw from a given generator.

torch.distributions samples from the global generator and validates its arguments at
every call; these do neither. Shapes: B batch (any leading shape), A action
dimensions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, softplus
from typing_extensions import override

from slm_lab.agent.device import moved


class Distribution(ABC):
    """A batch of distributions over actions."""

    num_bounds: int = 1
    """K, the number of its parts whose changes can be bounded separately."""

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Tensor:
        """One action each, (B,) or (B, A); draws from `generator` only."""

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """One action each and its log-probability, (B,)."""
        action = self.sample(generator)
        return action, self.log_prob(action)

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log density or log mass of `action`, (B,)."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, (B,)."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The most likely action, (B,) or (B, A)."""

    @abstractmethod
    def kl_from(self, old: Self) -> Tensor:
        """KL(old ‖ self) in nats, (B, K). A normal distribution has two, which
        arXiv:1812.02256 decouples. The first is KL(old ‖ old with the mean of self).
        The second is KL(old ‖ old with the covariance of self)."""


MASKED_LOGIT = -1e9
"""The logit of a choice that a component does not have. Its mass is exactly zero, and
so is its share of an entropy, which −∞ would turn into NaN."""


def _kl_of_choices(old_log_p: Tensor, log_p: Tensor) -> Tensor:
    """Σ p_old (log p_old − log p) over the last axis."""
    return (old_log_p.exp() * (old_log_p - log_p)).sum(-1)


def gumbel_max(log_p: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from logits (..., n) along the last axis: −log of an exponential variable
    is Gumbel."""
    exponential = torch.empty_like(log_p).exponential_(generator=generator)
    return (log_p - exponential.log_()).argmax(-1)


@final
class Categorical(Distribution):
    """A distribution over n discrete actions (B,) int64, from logits (B, n)."""

    def __init__(self, logits: Tensor) -> None:
        self.log_p = logits.log_softmax(-1)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return gumbel_max(self.log_p, generator)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    @override
    def entropy(self) -> Tensor:
        """−Σ p log p, (B,)."""
        return -(self.log_p.exp() * self.log_p).sum(-1)

    @override
    def mode(self) -> Tensor:
        return self.log_p.argmax(-1)

    @override
    def kl_from(self, old: Self) -> Tensor:
        return _kl_of_choices(old.log_p, self.log_p).unsqueeze(-1)


@final
class MultiCategorical(Distribution):
    """K choices (B, K) int64 among n_1, …, n_K, from their logits side by side, (B, Σ
    n_k)."""

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        widest = max(sizes)
        if sum(sizes) < len(sizes) * widest:
            parts = torch.split(logits, list(sizes), -1)
            rows = [
                pad(x, (0, widest - x.shape[-1]), value=MASKED_LOGIT) for x in parts
            ]
            logits = torch.cat(rows, -1)
        self.log_p = logits.view(*logits.shape[:-1], len(sizes), widest).log_softmax(-1)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return gumbel_max(self.log_p, generator)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """Σ_k log p_k(a_k), (B,)."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """−Σ_k Σ p_k log p_k, (B,)."""
        return -(self.log_p.exp() * self.log_p).sum((-2, -1))

    @override
    def mode(self) -> Tensor:
        return self.log_p.argmax(-1)

    @override
    def kl_from(self, old: Self) -> Tensor:
        """The sum over the K choices."""
        return _kl_of_choices(old.log_p, self.log_p).sum(-1, keepdim=True)


@final
class Bernoulli(Distribution):
    """A independent bits, (B, A) int8, from their logits (B, A)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        uniform = torch.empty_like(self.logits).uniform_(generator=generator)
        return (uniform < self.logits.sigmoid()).to(torch.int8)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """Σ a l − log(1 + e^l), (B,)."""
        return (action * self.logits - softplus(self.logits)).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """Σ log(1 + e^l) − l σ(l), (B,)."""
        return (softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)

    @override
    def mode(self) -> Tensor:
        return (self.logits > 0).to(torch.int8)

    @override
    def kl_from(self, old: Self) -> Tensor:
        """Σ p_old (l_old − l) − log(1 + e^l_old) + log(1 + e^l)."""
        gained = softplus(self.logits) - softplus(old.logits)
        kl = old.logits.sigmoid() * (old.logits - self.logits) + gained
        return kl.sum(-1, keepdim=True)


LOG_STD_RANGE = (-20.0, 2.0)
EDGE = 1e-6
"""Distance to the edge of the support at which a density is evaluated: on the edge it
would be zero."""
MAX_EXPONENT = 80.0
"""The largest exponent of e: beyond 88 a float32 is infinite."""
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_HERMITE = (_NODES, _WEIGHTS / _WEIGHTS.sum())
"""Nodes and weights (32,) for the mean of a function of a standard normal variable."""


def standard_normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """N(0, 1) of the shape and on the device of `like`; `generator` is there or on the
    CPU."""
    device = generator.device
    return moved(
        torch.randn(like.shape, generator=generator, device=device), like.device
    )


@final
class DiagonalNormal(Distribution):
    """Independent normal distributions, from mean and log standard deviation, both (B,
    A)."""

    num_bounds = 2

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.clamp(*LOG_STD_RANGE)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return self.scaled(standard_normal(self.mean, generator))

    def scaled(self, noise: Tensor) -> Tensor:
        """Standard normal noise (B, A) as a sample, μ + σε."""
        return self.mean + self.log_std.exp() * noise

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """−½((a − μ)/σ)² − log σ − ½ log 2π, summed over A: (B,)."""
        scaled = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled * scaled - self.log_std - HALF_LOG_2PI).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """Σ (½ + ½ log 2π + log σ), (B,)."""
        return (self.log_std + (0.5 + HALF_LOG_2PI)).sum(-1)

    @override
    def mode(self) -> Tensor:
        return self.mean

    @override
    def kl_from(self, old: Self) -> Tensor:
        """½ Σ ((μ − μ_old)/σ_old)², and Σ ½ ((σ_old/σ)² − 1) − log(σ_old/σ)."""
        moved_by = (self.mean - old.mean) * (-old.log_std).exp()
        log_ratio = old.log_std - self.log_std
        of_mean = 0.5 * moved_by * moved_by
        of_scale = 0.5 * (2 * log_ratio).expm1() - log_ratio
        return torch.stack([of_mean.sum(-1), of_scale.sum(-1)], -1)


@final
class MultivariateNormal(Distribution):
    """A normal distribution with correlations: covariance L Lᵀ. `mean` is (B, A).
    `cholesky` is (B, A(A + 1)/2) and holds L. First come the A(A − 1)/2 entries below
    its diagonal, row by row. Then come the logarithms of its A diagonal entries."""

    num_bounds = 2

    def __init__(self, mean: Tensor, cholesky: Tensor) -> None:
        size = mean.shape[-1]
        below, log_diagonal = torch.split(cholesky, [size * (size - 1) // 2, size], -1)
        self.mean = mean
        self.log_diagonal = log_diagonal.clamp(*LOG_STD_RANGE)
        rows, columns = torch.tril_indices(size, size, -1, device=mean.device)
        factor = torch.diag_embed(self.log_diagonal.exp())
        factor[..., rows, columns] = below
        self.factor = factor

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """μ + L ε with ε ~ N(0, 1): (B, A)."""
        noise = standard_normal(self.mean, generator)
        return self.mean + (self.factor @ noise.unsqueeze(-1)).squeeze(-1)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """−½ |L⁻¹ (a − μ)|² − log det L − ½ A log 2π: (B,)."""
        deviation = (action - self.mean).unsqueeze(-1)
        scaled: Tensor = torch.linalg.solve_triangular(
            self.factor, deviation, upper=False
        )
        square = scaled.squeeze(-1).square()
        return (-0.5 * square - self.log_diagonal - HALF_LOG_2PI).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """½ A (1 + log 2π) + log det L, (B,)."""
        return (self.log_diagonal + (0.5 + HALF_LOG_2PI)).sum(-1)

    @override
    def mode(self) -> Tensor:
        return self.mean

    @override
    def kl_from(self, old: Self) -> Tensor:
        """½ |L_old⁻¹ (μ − μ_old)|², and ½ (|L⁻¹ L_old|² − A) − log det L_old + log det
        L."""
        deviation = (self.mean - old.mean).unsqueeze(-1)
        moved_by: Tensor = torch.linalg.solve_triangular(
            old.factor, deviation, upper=False
        )
        scaled: Tensor = torch.linalg.solve_triangular(
            self.factor, old.factor, upper=False
        )
        of_mean = 0.5 * moved_by.square().sum((-2, -1))
        grown = (self.log_diagonal - old.log_diagonal).sum(-1)
        size = self.mean.shape[-1]
        of_scale = 0.5 * (scaled.square().sum((-2, -1)) - size) + grown
        return torch.stack([of_mean, of_scale], -1)


@final
class LogNormal(Distribution):
    """Independent a = low + e^x with x normal: above `low` (A,), without an upper
    bound."""

    num_bounds = 2

    def __init__(self, mean: Tensor, log_std: Tensor, low: Tensor) -> None:
        self._normal = DiagonalNormal(mean, log_std)
        self._low = low

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return self._low + self._normal.sample(generator).clamp(max=MAX_EXPONENT).exp()

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """log N(x; μ, σ) − x with x = log(a − low), summed over A: (B,)."""
        x = (action - self._low).clamp(min=EDGE).log()
        return self._normal.log_prob(x) - x.sum(-1)

    @override
    def entropy(self) -> Tensor:
        """The entropy of x plus Σ μ, (B,)."""
        return self._normal.entropy() + self._normal.mean.sum(-1)

    @override
    def mode(self) -> Tensor:
        """low + exp(μ − σ²), (B, A)."""
        log_mode = self._normal.mean - (2 * self._normal.log_std).exp()
        return self._low + log_mode.clamp(max=MAX_EXPONENT).exp()

    @override
    def kl_from(self, old: Self) -> Tensor:
        return self._normal.kl_from(old._normal)


@final
class Beta(Distribution):
    """Independent Beta distributions on [low, high] (both (A,)): no action is ever
    clipped. α = 1 + softplus(first output) and β = 1 + softplus(second), so that each
    has one mode. See Chou, Maturana & Scherer, "Improving stochastic policy gradients
    in continuous control with deep reinforcement learning using the Beta distribution"
    (2017)."""

    def __init__(
        self, raw_alpha: Tensor, raw_beta: Tensor, low: Tensor, high: Tensor
    ) -> None:
        self.alpha = 1 + softplus(raw_alpha)
        self.beta = 1 + softplus(raw_beta)
        self._low = low
        self._width: Tensor = high - low

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """G_α / (G_α + G_β) of two Gamma variables, stretched to [low, high]: (B,
        A)."""
        first = torch._standard_gamma(self.alpha, generator=generator)
        second = torch._standard_gamma(self.beta, generator=generator)
        return self._low + self._width * (first / (first + second))

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """(α−1) log x + (β−1) log(1−x) − log B(α, β) − log(high − low), summed over A:
        (B,)."""
        x = ((action - self._low) / self._width).clamp(EDGE, 1 - EDGE)
        density = (self.alpha - 1) * x.log() + (self.beta - 1) * torch.log1p(-x)
        return (density - self._log_beta() - self._width.log()).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """log B − (α−1)ψ(α) − (β−1)ψ(β) + (α+β−2)ψ(α+β) + log(high − low), summed:
        (B,)."""
        alpha = self.alpha
        beta = self.beta
        of_unit_interval = (
            self._log_beta()
            - (alpha - 1) * alpha.digamma()
            - (beta - 1) * beta.digamma()
            + (alpha + beta - 2) * (alpha + beta).digamma()
        )
        return (of_unit_interval + self._width.log()).sum(-1)

    @override
    def mode(self) -> Tensor:
        """(α − 1)/(α + β − 2), stretched; the middle where the distribution is flat:
        (B, A)."""
        peak = (self.alpha - 1) / (self.alpha + self.beta - 2).clamp(min=EDGE)
        flat = self.alpha + self.beta - 2 < EDGE
        return self._low + self._width * torch.where(flat, 0.5, peak)

    @override
    def kl_from(self, old: Self) -> Tensor:
        """log B − log B_old + Σ (α_old − α)ψ(α_old) + (β_old − β)ψ(β_old) + (α + β −
        α_old − β_old)ψ(α_old + β_old)."""
        alpha = old.alpha - self.alpha
        beta = old.beta - self.beta
        kl = (
            self._log_beta()
            - old._log_beta()
            + alpha * old.alpha.digamma()
            + beta * old.beta.digamma()
            - (alpha + beta) * (old.alpha + old.beta).digamma()
        )
        return kl.sum(-1, keepdim=True)

    def _log_beta(self) -> Tensor:
        return (
            self.alpha.lgamma() + self.beta.lgamma() - (self.alpha + self.beta).lgamma()
        )


@final
class TanhNormal(Distribution):
    """a = tanh(u) with u normal: between −1 and 1, appendix C of arXiv:1812.05905.
    Samples carry gradients to mean and log σ, both (B, A)."""

    num_bounds = 2

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self._normal = DiagonalNormal(mean, log_std)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return self._normal.sample(generator).tanh()

    @override
    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.with_log_prob(standard_normal(self._normal.mean, generator))

    def with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The action of standard normal noise (B, A), and its log-probability. That is
        computed from noise and u: neither a small σε beside μ, nor tanh(u) near ±1,
        determines them."""
        normal = self._normal
        u = normal.scaled(noise)
        log_prob = -0.5 * noise * noise - normal.log_std - HALF_LOG_2PI - _log_slope(u)
        return u.tanh(), log_prob.sum(-1)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """log N(u; μ, σ) − Σ log(1 − tanh²u) with u = atanh(a), (B,)."""
        u = action.clamp(EDGE - 1, 1 - EDGE).atanh()
        return self._normal.log_prob(u) - _log_slope(u).sum(-1)

    @override
    def entropy(self) -> Tensor:
        """The entropy of u plus Σ E[log(1 − tanh²u)], by Gauss–Hermite quadrature:
        (B,)."""
        nodes, weights = (torch.as_tensor(x, dtype=torch.float32) for x in _HERMITE)
        mean = self._normal.mean
        std = self._normal.log_std.exp()
        at_nodes = _log_slope(
            mean.unsqueeze(-1) + std.unsqueeze(-1) * moved(nodes, mean.device)
        )
        expected: Tensor = at_nodes @ moved(weights, mean.device)
        return self._normal.entropy() + expected.sum(-1)

    @override
    def mode(self) -> Tensor:
        """tanh μ, (B, A): the median; the density may peak elsewhere."""
        return self._normal.mean.tanh()

    @override
    def kl_from(self, old: Self) -> Tensor:
        return self._normal.kl_from(old._normal)


def _log_slope(u: Tensor) -> Tensor:
    """log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)), finite for every u."""
    return 2 * (math.log(2) - u - softplus(-2 * u))


@final
class TanhPoint(Distribution):
    """The one action tanh(u), (B, A), of a deterministic policy. It has no density: its
    log-probability and its entropy are zero."""

    def __init__(self, u: Tensor) -> None:
        self._action = u.tanh()

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return self._action

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        return torch.zeros_like(action[..., 0])

    @override
    def entropy(self) -> Tensor:
        return torch.zeros_like(self._action[..., 0])

    @override
    def mode(self) -> Tensor:
        return self._action

    @override
    def kl_from(self, old: Self) -> Tensor:
        return torch.zeros_like(self._action[..., :1])


class RowColumns(NamedTuple):
    """The place of one part of an action in a row (K,) of float32."""

    columns: slice
    is_number: bool
    """Whether its actions are (B,), without an axis."""
    dtype: torch.dtype
    """The type of its actions."""

    def action_in(self, rows: Tensor) -> Tensor:
        """Its actions, (B,) or (B, A), in rows (B, K)."""
        action = rows[..., self.columns].to(self.dtype)
        if self.is_number:
            return action.squeeze(-1)
        return action

    def as_columns(self, action: Tensor) -> Tensor:
        """Its actions as columns of rows, (B, A)."""
        if self.is_number:
            action = action.unsqueeze(-1)
        return action.float()


@final
class Product(Distribution):
    """Independent parts of an action, side by side in rows (B, K) of float32: p(a) =
    Π_k p_k(a_k)."""

    def __init__(
        self, parts: Sequence[Distribution], places: Sequence[RowColumns]
    ) -> None:
        self.parts = parts
        self._places = places
        self.num_bounds = max(part.num_bounds for part in parts)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        return self._rows([part.sample(generator) for part in self.parts])

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """Σ_k log p_k(a_k), (B,)."""
        pairs = zip(self.parts, self._places, strict=True)
        return _sum([part.log_prob(place.action_in(action)) for part, place in pairs])

    @override
    def entropy(self) -> Tensor:
        """Σ_k H_k, (B,)."""
        return _sum([part.entropy() for part in self.parts])

    @override
    def mode(self) -> Tensor:
        return self._rows([part.mode() for part in self.parts])

    @override
    def kl_from(self, old: Self) -> Tensor:
        """The sums over the parts. A part with one KL adds it to the first of two."""
        pairs = zip(self.parts, old.parts, strict=True)
        kl = [part.kl_from(before) for part, before in pairs]
        return _sum(
            [pad(of_part, (0, self.num_bounds - of_part.shape[-1])) for of_part in kl]
        )

    def _rows(self, actions: Sequence[Tensor]) -> Tensor:
        pairs = zip(self._places, actions, strict=True)
        return torch.cat([place.as_columns(action) for place, action in pairs], -1)


def _sum(terms: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, terms)
