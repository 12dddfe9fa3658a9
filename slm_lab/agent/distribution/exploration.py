"""Ways of acting on a policy: what `action_policy` names.

Each makes of the network's outputs what actions are really drawn from, so that the recorded
log-probability is that of the behaviour, whatever it was.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.distribution.choice import EpsilonGreedy, softmax
from slm_lab.agent.distribution.distribution import Distribution
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.generators import Generators
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray


class ActionSampler(Protocol):
    """What the actions of a batch are drawn from."""

    def draw(self, generators: Generators) -> tuple[Array, FloatArray]:
        """Actions (B, *action_shape) and their log-probabilities (B,)."""


ExplorationPolicy: TypeAlias = Callable[[FloatArray, float], ActionSampler]
"""From distribution parameters (B, param_dim) and the exploration variable to what is drawn."""

COLDEST = 1e-6
"""The lowest temperature: at zero, where a schedule may end, Boltzmann is greedy."""


def exploration_policy(
    action_policy: str, family: DistributionFamily, action_space: gymnasium.Space[Any]
) -> ExplorationPolicy:
    """The way of acting that `action_policy` names. Raises LabError where it does not fit."""
    is_choice = isinstance(action_space, spaces.Discrete)
    if action_policy == "default" and family.greedy:
        return lambda logits, _: EpsilonGreedy(logits, 0.0)
    if action_policy == "default" and is_choice:
        return lambda logits, _: softmax(logits)
    if action_policy == "default":
        return lambda params, _: FromDistribution(family(torch.from_numpy(params)))
    if action_policy == "random":
        return _uniform(family, action_space)
    if not is_choice:
        raise LabError(
            f"agent.algorithm.action_policy = {action_policy!r}: chooses one of n actions, the "
            f'environment\'s are {action_space}; use "default" or "random"'
        )
    return {"epsilon_greedy": EpsilonGreedy, "boltzmann": boltzmann}[action_policy]


def boltzmann(logits: FloatArray, temperature: float) -> ActionSampler:
    """Each action with a probability proportional to p^(1/τ): for Q-values q, to e^(q/τ)."""
    return softmax(logits, max(temperature, COLDEST))


@final
class FromDistribution:
    """A distribution of torch's numbers."""

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution

    @torch.inference_mode()
    def draw(self, generators: Generators) -> tuple[Array, FloatArray]:
        """See `ActionSampler`."""
        action, log_prob = self._distribution.sample_with_log_prob(generators.tensor)
        return action.numpy(), log_prob.numpy()


@final
class UniformBox(Distribution):
    """Uniform between two vectors (A,); a batch of `size`."""

    def __init__(self, size: int, low: Tensor, high: Tensor) -> None:
        self._low = low.expand(size, -1)
        self._width = (high - low).expand(size, -1)

    @override
    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A)."""
        return self._low + self._width * torch.rand(self._low.shape, generator=generator)

    @override
    def log_prob(self, action: Tensor) -> Tensor:
        """−Σ log(high − low), (B,)."""
        return -self.entropy()

    @override
    def entropy(self) -> Tensor:
        """Σ log(high − low), (B,)."""
        return self._width.log().sum(-1)

    @override
    def mode(self) -> Tensor:
        """The middle, (B, A): no action is likelier than another."""
        return self._low + self._width / 2


def _uniform(family: DistributionFamily, action_space: gymnasium.Space[Any]) -> ExplorationPolicy:
    """Every action as likely as every other, whatever the network says."""
    if not isinstance(action_space, spaces.Box):
        equal = np.zeros_like
        return lambda logits, _: FromDistribution(family(torch.from_numpy(equal(logits))))
    bounds = np.stack([action_space.low, action_space.high])
    if not np.isfinite(bounds).all():
        raise LabError(
            'agent.algorithm.action_policy = "random": needs actions with two bounds each, the '
            f"environment's are {action_space}"
        )
    low, high = torch.as_tensor(bounds, dtype=torch.float32)
    return lambda params, _: FromDistribution(UniformBox(len(params), low, high))
