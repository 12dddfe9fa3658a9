"""Distributions by NumPy: of nodes, with the gradients of log-probabilities and
entropies written out; and of arrays, to draw from."""

import math
from typing import Protocol, final

import numpy as np
from torch import Tensor

from slm_lab.agent.autodiff import Node
from slm_lab.agent.distribution.distributions import HALF_LOG_2PI, LOG_STD_RANGE
from slm_lab.core.types import FloatArray


class NodeDistribution(Protocol):
    """A batch of distributions over actions, as a loss needs them."""

    def log_prob(self, action: Tensor) -> Node:
        """Log density or log mass of `action`, (B,)."""

    def entropy(self) -> Node:
        """Entropy in nats, (B,)."""


@final
class CategoricalNode:
    """`Categorical` from logits (B, n)."""

    def __init__(self, logits: Node) -> None:
        self._logits = logits
        log_p = logits.array.T.copy()  # (n, B): NumPy reduces rows far faster
        log_p -= np.maximum.reduce(log_p, 0)
        p = np.exp(log_p)
        total = np.add.reduce(p, 0)
        p /= total
        log_p -= np.log(total)
        self._p, self._log_p = p, log_p

    def log_prob(self, action: Tensor) -> Node:
        """∂ log p(a) / ∂ l_i = [i = a] − p_i."""
        p, taken = self._p, action.numpy()

        def vjp(grad: FloatArray) -> tuple[FloatArray]:
            is_taken = np.arange(len(p))[:, None] == taken
            return (((is_taken - p) * grad).T,)

        return Node(self._log_p[taken, np.arange(len(taken))], (self._logits,), vjp)

    def entropy(self) -> Node:
        """H = −Σ p log p; ∂H / ∂ l_i = −p_i (log p_i + H)."""
        p, log_p = self._p, self._log_p
        entropy = -np.add.reduce(p * log_p, 0)

        def vjp(grad: FloatArray) -> tuple[FloatArray]:
            return ((p * (log_p + entropy) * -grad).T,)

        return Node(entropy, (self._logits,), vjp)


def draw_normal(
    params: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Actions (B, A) of `DiagonalNormal` and their log-probabilities (B,), from mean
    and log σ side by side, (B, 2 A)."""
    size = params.shape[-1] // 2
    mean, log_std = params[:, :size], params[:, size:].clip(*LOG_STD_RANGE)
    action = mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32)
    return action, _normal_log_prob((action - mean) * np.exp(-log_std), log_std)


def _normal_log_prob(z: FloatArray, log_std: FloatArray) -> FloatArray:
    """−½ z² − log σ − ½ log 2π, summed over A: (B,)."""
    log_prob: FloatArray = np.add.reduce(
        -0.5 * z * z - log_std - np.float32(HALF_LOG_2PI), -1
    )
    return log_prob


def squashed_nodes(params: Node, noise: Tensor) -> tuple[Node, Node]:
    """The action of `TanhNormal` for standard normal noise (B, A), and its
    log-probability (B,), from mean and log σ side by side, (B, 2 A). With u = μ + σε
    and a = tanh u: ∂a/∂u = 1 − a², ∂ log π/∂u = 2a, and ∂ log π/∂ log σ = 2aσε − 1."""
    epsilon = noise.numpy()
    mean, log_std = np.split(params.array, 2, -1)
    bounded = log_std.clip(*LOG_STD_RANGE)
    within = log_std == bounded
    scaled = np.exp(bounded) * epsilon
    u = mean + scaled
    action, size = np.tanh(u), np.abs(u)
    # even in u
    log_slope = 2 * (np.float32(math.log(2)) - size - np.log1p(np.exp(-2 * size)))
    log_prob = _normal_log_prob(epsilon, bounded) - np.add.reduce(log_slope, -1)

    def of_action(grad: FloatArray) -> tuple[FloatArray]:
        of_u = grad * (1 - action * action)
        return (np.hstack([of_u, of_u * scaled * within]),)

    def of_log_prob(grad: FloatArray) -> tuple[FloatArray]:
        of_u = 2 * action
        return (np.hstack([of_u, (of_u * scaled - 1) * within]) * grad[:, None],)

    return Node(action, (params,), of_action), Node(log_prob, (params,), of_log_prob)


@final
class NormalNode:
    """`DiagonalNormal` from mean and log σ side by side, (B, 2 A)."""

    def __init__(self, params: Node) -> None:
        self._params = params
        self._mean, log_std = np.split(params.array, 2, -1)
        self._log_std = np.clip(log_std, *LOG_STD_RANGE)
        self._within = (log_std == self._log_std).astype(np.float32)

    def log_prob(self, action: Tensor) -> Node:
        """With z = (a − μ) / σ: ∂/∂μ = z / σ, ∂/∂ log σ = z² − 1."""
        inverse_std = np.exp(-self._log_std)
        z = (action.numpy() - self._mean) * inverse_std

        def vjp(grad: FloatArray) -> tuple[FloatArray]:
            of_log_std = (z * z - 1) * self._within
            return (np.hstack([z * inverse_std, of_log_std]) * grad[:, None],)

        return Node(_normal_log_prob(z, self._log_std), (self._params,), vjp)

    def entropy(self) -> Node:
        """Σ (½ + ½ log 2π + log σ)."""
        within = self._within

        def vjp(grad: FloatArray) -> tuple[FloatArray]:
            return (np.hstack([np.zeros_like(within), within * grad[:, None]]),)

        entropy = np.add.reduce(self._log_std + np.float32(0.5 + HALF_LOG_2PI), -1)
        return Node(entropy, (self._params,), vjp)
