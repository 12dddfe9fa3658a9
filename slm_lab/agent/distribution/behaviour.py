"""Ways of acting on a policy: what `action_policy` names.

Each makes of the network's outputs the distribution that actions are really drawn from, so that the
recorded log-probability is that of the behaviour, whatever it was.
"""

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
        return lambda params, _: epsilon_greedy(family(params), 0.0)
    if action_policy == "default":
        return lambda params, _: family(params)
    if action_policy == "random":
        return _uniform(family, action_space)
    if not isinstance(action_space, spaces.Discrete):
        raise LabError(
            f"agent.algorithm.action_policy = {action_policy!r}: chooses one of n actions, the "
            f'environment\'s are {action_space}; use "default" or "random"'
        )
    rule = {"epsilon_greedy": epsilon_greedy, "boltzmann": boltzmann}[action_policy]
    return lambda params, explore_var: rule(family(params), explore_var)


def epsilon_greedy(policy: Distribution, epsilon: float) -> Categorical:
    """The most likely of n actions with probability 1 − ε + ε/n, every other with ε/n."""
    assert isinstance(policy, Categorical)
    num_actions = policy.log_p.shape[-1]
    probability = torch.full_like(policy.log_p, epsilon / num_actions)
    greedy = policy.mode().unsqueeze(-1)
    probability.scatter_add_(-1, greedy, torch.full_like(probability[..., :1], 1 - epsilon))
    return Categorical(probability.log())


def boltzmann(policy: Distribution, temperature: float) -> Categorical:
    """Each action with a probability proportional to p^(1/τ): for Q-values q, to e^(q/τ)."""
    assert isinstance(policy, Categorical)
    return Categorical(policy.log_p / max(temperature, COLDEST))


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
