"""Ways of acting on a policy: what `action_policy` names.

Each makes of the network's outputs the distribution that actions are really drawn from, so that the
recorded log-probability is that of the behaviour, whatever it was.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from slm_lab.agent.distribution.discrete import Categorical
from slm_lab.agent.distribution.distribution import Distribution
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.core.errors import LabError

Behaviour: TypeAlias = Callable[[Tensor, float], Distribution]
"""From distribution parameters (B, param_dim) and the exploration variable to a distribution."""

COLDEST = 1e-6
"""The lowest temperature: at zero, where a schedule may end, Boltzmann is greedy."""


def behaviour(
    action_policy: str, family: DistributionFamily, action_space: gymnasium.Space[Any]
) -> Behaviour:
    """The way of acting that `action_policy` names. Raises LabError where it does not fit."""
    if action_policy == "default" and family.greedy:
        return lambda params, _: EpsilonGreedy(params, 0.0)
    if action_policy == "default":
        return lambda params, _: family(params)
    if action_policy == "random":
        return _uniform(family, action_space)
    if not isinstance(action_space, spaces.Discrete):
        raise LabError(
            f"agent.algorithm.action_policy = {action_policy!r}: chooses one of n actions, the "
            f'environment\'s are {action_space}; use "default" or "random"'
        )
    return {"epsilon_greedy": EpsilonGreedy, "boltzmann": boltzmann}[action_policy]


def boltzmann(logits: Tensor, temperature: float) -> Categorical:
    """Each action with a probability proportional to p^(1/τ): for Q-values q, to e^(q/τ)."""
    return Categorical(logits / max(temperature, COLDEST))


@final
class EpsilonGreedy(Distribution):
    """The action with the largest of n logits (B, n), but with probability ε any of the n."""

    def __init__(self, logits: Tensor, epsilon: float) -> None:
        self._greedy = logits.argmax(-1)
        self._num_actions = logits.shape[-1]
        self._epsilon = epsilon
        other = epsilon / self._num_actions
        self._p_greedy, self._p_other = 1 - epsilon + other, other

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B,) int64; whether to explore is drawn for each by itself."""
        shape = self._greedy.shape
        explores = torch.rand(shape, generator=generator) < self._epsilon
        anything = torch.randint(self._num_actions, shape, generator=generator)
        return torch.where(explores, anything, self._greedy)

    def log_prob(self, action: Tensor) -> Tensor:
        """log(1 − ε + ε/n) of the greedy action, log(ε/n) of every other, (B,)."""
        return torch.where(action == self._greedy, _log(self._p_greedy), _log(self._p_other))

    def entropy(self) -> Tensor:
        """−Σ p log p, (B,)."""
        terms = [self._p_greedy, *[self._p_other] * (self._num_actions - 1)]
        entropy = -sum(p * math.log(p) for p in terms if p > 0)
        return torch.full(self._greedy.shape, entropy)

    def mode(self) -> Tensor:
        """(B,) int64."""
        return self._greedy


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


@final
class UniformBox(Distribution):
    """Uniform between two vectors (A,); a batch of `size`."""

    def __init__(self, size: int, low: Tensor, high: Tensor) -> None:
        self._low = low.expand(size, -1)
        self._width = (high - low).expand(size, -1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A)."""
        return self._low + self._width * torch.rand(self._low.shape, generator=generator)

    def log_prob(self, action: Tensor) -> Tensor:
        """−Σ log(high − low), (B,)."""
        return -self.entropy()

    def entropy(self) -> Tensor:
        """Σ log(high − low), (B,)."""
        return self._width.log().sum(-1)

    def mode(self) -> Tensor:
        """The middle, (B, A): no action is likelier than another."""
        return self._low + self._width / 2


def _uniform(family: DistributionFamily, action_space: gymnasium.Space[Any]) -> Behaviour:
    """Every action as likely as every other, whatever the network says."""
    if not isinstance(action_space, spaces.Box):
        return lambda params, _: family(torch.zeros_like(params))  # equal logits
    bounds = np.stack([action_space.low, action_space.high])
    if not np.isfinite(bounds).all():
        raise LabError(
            'agent.algorithm.action_policy = "random": needs actions with two bounds each, the '
            f"environment's are {action_space}"
        )
    low, high = torch.as_tensor(bounds, dtype=torch.float32)
    return lambda params, _: UniformBox(len(params), low, high)
