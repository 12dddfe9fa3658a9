"""Choosing one of n actions, by NumPy.

What an actor does in every vector step is done with a few numbers, and torch takes three times as
long to get hold of them. Learning, which needs gradients, has `discrete.Categorical`.
"""

import math
from typing import final

import numpy as np

from slm_lab.agent.generators import Generators
from slm_lab.core.types import FloatArray, IntArray


@final
class FastCategorical:
    """One of n actions in each of B states."""

    def __init__(self, p: FloatArray) -> None:
        self.p = p
        """(B, n), how likely each is."""

    def draw(self, generators: Generators) -> tuple[IntArray, FloatArray]:
        """Actions (B,) int64 and the logarithm of how likely they were, (B,)."""
        cumulative = np.add.accumulate(self.p, -1)
        u = generators.array.random(len(self.p), np.float32)
        # Those that are passed; never the last one, and none whose p is zero is stopped at.
        action = np.add.reduce(cumulative <= (u * cumulative[:, -1])[:, None], -1)
        return action, np.log(self.p[np.arange(len(action)), action])


def softmax(logits: FloatArray, temperature: float = 1.0) -> FastCategorical:
    """p ∝ e^(l/τ) of logits (B, n)."""
    p = logits - np.maximum.reduce(logits, -1, keepdims=True)
    if temperature != 1.0:
        p /= temperature
    np.exp(p, out=p)
    p /= np.add.reduce(p, -1, keepdims=True)
    return FastCategorical(p)


@final
class EpsilonGreedy:
    """The action with the largest of n logits (B, n), but with probability ε any of the n."""

    def __init__(self, logits: FloatArray, epsilon: float) -> None:
        self._greedy = logits.argmax(-1)
        self._num_actions = logits.shape[-1]
        self._epsilon = epsilon

    def draw(self, generators: Generators) -> tuple[IntArray, FloatArray]:
        """One number u per row: explores if u < ε, and u / ε chooses the action then."""
        epsilon, n = self._epsilon, self._num_actions
        greedy = self._greedy
        u = generators.array.random(len(greedy))
        p_greedy = 1 - epsilon + epsilon / n
        explores = u < epsilon
        if not np.count_nonzero(explores):
            log_prob = np.empty(len(greedy), np.float32)
            log_prob.fill(math.log(p_greedy))  # np.full takes a microsecond more
            return greedy, log_prob
        action = np.where(explores, (u / epsilon * n).astype(np.int64), greedy)
        p = np.where(action == greedy, p_greedy, epsilon / n)
        return action, np.log(p, dtype=np.float32)
