"""Exploration: the distributions that actors really draw from, by `action_policy`.

An actor draws in every vector step from a few numbers, where torch takes three times as long as
NumPy. So choices among n actions are drawn by NumPy. Learning, which needs gradients, has
`distributions.Categorical`. The recorded log-probability is that of the exploring policy.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from slm_lab.agent.distribution.distributions import Distribution
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray, IntArray, StateDict


@final
class Generators:
    """A NumPy and a torch generator of one seed."""

    def __init__(self, seed: int) -> None:
        self.array = np.random.default_rng(seed)
        self.tensor = torch.Generator().manual_seed(seed)

    def state_dict(self) -> StateDict:
        """The state of both."""
        return {"array": self.array.bit_generator.state, "tensor": self.tensor.get_state()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self.array.bit_generator.state = state["array"]
        self.tensor.set_state(state["tensor"])


@final
class FastCategorical:
    """One of n actions in each of B states."""

    def __init__(self, p: FloatArray) -> None:
        self.p = p
        """(B, n), the probability of each."""

    def sample(self, generators: Generators) -> tuple[IntArray, FloatArray]:
        """Actions (B,) int64 and their log-probabilities, (B,)."""
        cumulative = np.add.accumulate(self.p, -1)
        u = generators.array.random(len(self.p), np.float32)
        # The number of sums that u passes: never all, and never an action whose p is zero.
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
    """The action with the largest of n logits (B, n); with probability ε any of the n."""

    def __init__(self, logits: FloatArray, epsilon: float) -> None:
        self._greedy = logits.argmax(-1)
        self._num_actions = logits.shape[-1]
        self._epsilon = epsilon

    def sample(self, generators: Generators) -> tuple[IntArray, FloatArray]:
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


class ActionSampler(Protocol):
    """What the actions of a batch are sampled from."""

    def sample(self, generators: Generators) -> tuple[Array, FloatArray]:
        """Actions (B, *action_shape) and their log-probabilities (B,)."""


ExplorationPolicy: TypeAlias = Callable[[FloatArray, float], ActionSampler]
"""From distribution parameters (B, param_dim) and the exploration variable to a sampler."""

MIN_TEMPERATURE = 1e-6
"""The lowest temperature: at zero, where a schedule may end, Boltzmann is greedy."""


def exploration_policy(
    action_policy: str, family: DistributionFamily, action_space: gymnasium.Space[Any]
) -> ExplorationPolicy:
    """What `action_policy` names. Raises LabError where it does not fit."""
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
    """Each action with a probability proportional to p^(1/τ); for Q-values q, to e^(q/τ)."""
    return softmax(logits, max(temperature, MIN_TEMPERATURE))


@final
class FromDistribution:
    """A torch distribution as a sampler."""

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution

    @torch.inference_mode()
    def sample(self, generators: Generators) -> tuple[Array, FloatArray]:
        """Actions (B, *action_shape) and their log-probabilities (B,)."""
        action, log_prob = self._distribution.sample_with_log_prob(generators.tensor)
        return action.numpy(), log_prob.numpy()


@final
class UniformBox:
    """Uniform between two vectors (A,); a batch of `size`."""

    def __init__(self, size: int, low: Tensor, high: Tensor) -> None:
        self._low = low.expand(size, -1)
        self._width = (high - low).expand(size, -1)

    def sample(self, generators: Generators) -> tuple[Array, FloatArray]:
        """Actions (B, A), and −Σ log(high − low), (B,)."""
        uniform = torch.rand(self._low.shape, generator=generators.tensor)
        action = self._low + self._width * uniform
        return action.numpy(), (-self._width.log().sum(-1)).numpy()


def _uniform(family: DistributionFamily, action_space: gymnasium.Space[Any]) -> ExplorationPolicy:
    """Every action equally likely, whatever the network puts out."""
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
    return lambda params, _: UniformBox(len(params), low, high)
