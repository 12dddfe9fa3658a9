"""Distributions of actions by NumPy, with the gradients of log-probabilities and
entropies written out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias, final

import numpy as np
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.expectation import deterministic, squashed
from slm_lab.agent.distribution.distributions import (
    LOG_STD_RANGE,
    Categorical,
    DiagonalNormal,
    Distribution,
)
from slm_lab.agent.distribution.exploration import normal_log_prob
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.core.types import FloatArray

UNIT_NORMAL_ENTROPY = np.float32(0.5 + 0.5 * math.log(2 * math.pi))


class Divergence(NamedTuple):
    """KL(old ‖ new) of a batch, by the parts whose change is bounded."""

    mean: FloatArray
    """(K,) in nats"""
    gradient: Callable[[FloatArray], FloatArray]
    """Maps the gradient of the means, (K,), to the gradient of the new parameters, (B,
    param_dim)."""


class ArrayDistribution(ABC):
    """A batch of distributions over actions, from a network's output (B, param_dim),
    and one action of each."""

    log_prob: FloatArray
    """(B,) log density or log mass of the actions"""

    @abstractmethod
    def __init__(self, params: FloatArray, action: Tensor) -> None: ...

    @cached_property
    @abstractmethod
    def entropy(self) -> FloatArray:
        """The entropies in nats, (B,)."""

    @abstractmethod
    def log_prob_gradient(self, grad: FloatArray) -> FloatArray:
        """Maps the gradient of the log-probabilities, (B,), to the gradient of the
        parameters, (B, param_dim)."""

    @abstractmethod
    def entropy_gradient(self, grad: np.float32) -> FloatArray:
        """Maps the gradient of each entropy, a scalar, to the gradient of the
        parameters, (B, param_dim)."""

    @abstractmethod
    def divergence_from(self, old_params: FloatArray) -> Divergence:
        """The mean of `Distribution.kl_from`, from older parameters (B, param_dim)."""


@final
class ArrayCategorical(ArrayDistribution):
    """`Categorical` from logits (B, n)."""

    def __init__(self, params: FloatArray, action: Tensor) -> None:
        self._p, self._log_p = _probabilities(params)
        self._taken = action.numpy()
        self.log_prob = self._log_p[self._taken, np.arange(len(self._taken))]

    @cached_property
    @override
    def entropy(self) -> FloatArray:
        entropy: FloatArray = -np.add.reduce(self._p * self._log_p, 0)
        return entropy

    @override
    def log_prob_gradient(self, grad: FloatArray) -> FloatArray:
        """∂ log p(a) / ∂ l_i = [i = a] − p_i."""
        is_taken = np.arange(len(self._p))[:, None] == self._taken
        return ((is_taken - self._p) * grad).T

    @override
    def entropy_gradient(self, grad: np.float32) -> FloatArray:
        """∂H / ∂ l_i = −p_i (log p_i + H)."""
        return (self._p * (self._log_p + self.entropy) * -grad).T

    @override
    def divergence_from(self, old_params: FloatArray) -> Divergence:
        """∂KL / ∂ l_i = p_i − p_old,i."""
        old_p, old_log_p = _probabilities(old_params)
        size = len(old_params)
        total = np.add.reduce(old_p * (old_log_p - self._log_p), None)

        def gradient(grad: FloatArray) -> FloatArray:
            return ((self._p - old_p) * (grad[0] / size)).T

        return Divergence(np.asarray([total / size], np.float32), gradient)


def _probabilities(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """p and log p, both (n, B), of logits (B, n)."""
    log_p = logits.T.copy()  # NumPy reduces rows far faster
    log_p -= np.maximum.reduce(log_p, 0)
    p = np.exp(log_p)
    total = np.add.reduce(p, 0)
    p /= total
    log_p -= np.log(total)
    return p, log_p


@final
class ArrayNormal(ArrayDistribution):
    """`DiagonalNormal` from mean and log σ side by side, (B, 2 A)."""

    def __init__(self, params: FloatArray, action: Tensor) -> None:
        mean, raw_log_std = np.split(params, 2, -1)
        log_std = np.clip(raw_log_std, *LOG_STD_RANGE)
        self._within = (raw_log_std == log_std).astype(np.float32)
        self._inverse_std = np.exp(-log_std)
        self._z = (action.numpy() - mean) * self._inverse_std
        self.log_prob = normal_log_prob(self._z, log_std)
        self._mean = mean
        self._log_std = log_std

    @cached_property
    @override
    def entropy(self) -> FloatArray:
        entropy: FloatArray = np.add.reduce(self._log_std + UNIT_NORMAL_ENTROPY, -1)
        return entropy

    @override
    def log_prob_gradient(self, grad: FloatArray) -> FloatArray:
        """The gradient of the log-probability: with z = (a − μ) / σ, ∂/∂μ = z / σ and
        ∂/∂ log σ = z² − 1."""
        z = self._z
        of_log_std = (z * z - 1) * self._within
        return np.hstack([z * self._inverse_std, of_log_std]) * grad[:, None]

    @override
    def entropy_gradient(self, grad: np.float32) -> FloatArray:
        """∂H / ∂ log σ = 1 within its bounds."""
        return np.hstack([np.zeros_like(self._within), self._within * grad])

    @override
    def divergence_from(self, old_params: FloatArray) -> Divergence:
        """∂KL_1/∂μ = (μ − μ_old)/σ_old², ∂KL_2/∂ log σ = 1 − (σ_old/σ)²."""
        old_mean, raw_log_std = np.split(old_params, 2, -1)
        old_log_std = np.clip(raw_log_std, *LOG_STD_RANGE)
        inverse_std = np.exp(-old_log_std)
        moved_by = (self._mean - old_mean) * inverse_std
        log_ratio = old_log_std - self._log_std
        growth = np.expm1(2 * log_ratio)
        size = len(old_params)
        of_mean = np.add.reduce(0.5 * moved_by * moved_by, None)
        of_scale = np.add.reduce(0.5 * growth - log_ratio, None)

        def gradient(grad: FloatArray) -> FloatArray:
            by_mean = moved_by * inverse_std * (grad[0] / size)
            by_log_std = -growth * self._within * (grad[1] / size)
            return np.hstack([by_mean, by_log_std])

        mean = np.asarray([of_mean / size, of_scale / size], np.float32)
        return Divergence(mean, gradient)


ARRAY_DISTRIBUTIONS: Mapping[type[Distribution], type[ArrayDistribution]] = {
    Categorical: ArrayCategorical,
    DiagonalNormal: ArrayNormal,
}
"""Distributions that are written out, by their class in torch."""


ArrayFamily: TypeAlias = Callable[[FloatArray, Tensor], ArrayDistribution]
"""Makes distributions from parameters (B, param_dim) and an action of each."""


def array_family(family: DistributionFamily) -> ArrayFamily | None:
    """The distributions of a family by NumPy; None if they are not written out."""
    if not family.parts:
        return ARRAY_DISTRIBUTIONS.get(family.kind)
    kinds = [array_family(part.family) for part in family.parts]
    written = [kind for kind in kinds if kind is not None]
    if len(written) < len(kinds):
        return None
    return partial(ArrayProduct, family, written)


@final
class ArrayProduct(ArrayDistribution):
    """`Product` from the parameters of all parts, (B, param_dim)."""

    def __init__(
        self,
        family: DistributionFamily,
        kinds: Sequence[ArrayFamily],
        params: FloatArray,
        action: Tensor,
    ) -> None:
        self._family = family
        self._parts = [
            kind(part.arrays_in(params), part.place.action_in(action))
            for part, kind in zip(family.parts, kinds, strict=True)
        ]
        self.log_prob = _sum([part.log_prob for part in self._parts])

    @cached_property
    @override
    def entropy(self) -> FloatArray:
        return _sum([part.entropy for part in self._parts])

    @override
    def log_prob_gradient(self, grad: FloatArray) -> FloatArray:
        return self._joined([part.log_prob_gradient(grad) for part in self._parts])

    @override
    def entropy_gradient(self, grad: np.float32) -> FloatArray:
        return self._joined([part.entropy_gradient(grad) for part in self._parts])

    @override
    def divergence_from(self, old_params: FloatArray) -> Divergence:
        divergences = [
            written.divergence_from(part.arrays_in(old_params))
            for written, part in zip(self._parts, self._family.parts, strict=True)
        ]
        mean = np.zeros(self._family.num_bounds, np.float32)
        for divergence in divergences:
            mean[: len(divergence.mean)] += divergence.mean

        def gradient(grad: FloatArray) -> FloatArray:
            return self._joined(
                [divergence.gradient(grad) for divergence in divergences]
            )

        return Divergence(mean, gradient)

    def _joined(self, gradients: Sequence[FloatArray]) -> FloatArray:
        """Joins the gradients of the parts' parameters to the gradient of the
        product's."""
        shape = (len(gradients[0]), self._family.param_dim)
        # in the order of the first in memory: of one part it is that very gradient
        joined = np.empty_like(gradients[0], np.float32, shape=shape)
        for part, gradient in zip(self._family.parts, gradients, strict=True):
            part.write_into(joined, gradient)
        return joined


def _sum(terms: Sequence[FloatArray]) -> FloatArray:
    total: FloatArray = np.add.reduce(terms, 0)
    return total


class ArraySample(NamedTuple):
    """Reparametrised actions, with their gradients."""

    action: FloatArray
    """(B, A)"""
    log_prob: FloatArray
    """(B,)"""
    backward: Callable[[FloatArray, FloatArray], FloatArray]
    """Maps the gradients of action (B, A) and log-probability (B,) to the gradient of
    the parameters, (B, param_dim)."""


ArraySampler: TypeAlias = Callable[[FloatArray, Tensor], ArraySample]
"""Maps parameters (B, param_dim) and noise to actions."""


def squashed_sample(params: FloatArray, noise: Tensor) -> ArraySample:
    """The sample of `TanhNormal` for standard normal noise (B, A). `params` are mean
    and log σ side by side, (B, 2 A). With u = μ + σε and a = tanh u: ∂a/∂u = 1 − a²,
    ∂ log π/∂u = 2a, and ∂ log π/∂ log σ = 2aσε − 1."""
    epsilon = noise.numpy()
    mean, log_std = np.split(params, 2, -1)
    bounded = log_std.clip(*LOG_STD_RANGE)
    within = log_std == bounded
    scaled = np.exp(bounded) * epsilon
    u = mean + scaled
    action = np.tanh(u)
    size = np.abs(u)
    # even in u
    log_slope = 2 * (np.float32(math.log(2)) - size - np.log1p(np.exp(-2 * size)))
    log_prob = normal_log_prob(epsilon, bounded) - np.add.reduce(log_slope, -1)

    def backward(of_action: FloatArray, of_log_prob: FloatArray) -> FloatArray:
        of_u = of_action * (1 - action * action)
        by_action = np.hstack([of_u, of_u * scaled * within])
        of_u = 2 * action
        by_log_prob = np.hstack([of_u, (of_u * scaled - 1) * within])
        grad: FloatArray = by_action + by_log_prob * of_log_prob[:, None]
        return grad

    return ArraySample(action, log_prob, backward)


def deterministic_sample(params: FloatArray, noise: Tensor) -> ArraySample:
    """The one action of `TanhPoint`, from u (B, A): ∂a/∂u = 1 − a²."""
    action = np.tanh(params)

    def backward(of_action: FloatArray, of_log_prob: FloatArray) -> FloatArray:
        grad: FloatArray = of_action * (1 - action * action)
        return grad

    return ArraySample(action, np.zeros(len(action), np.float32), backward)


ARRAY_SAMPLES: Mapping[object, ArraySampler] = {
    squashed: squashed_sample,
    deterministic: deterministic_sample,
}
"""Samples that are written out, by the expectation of torch that takes them."""
