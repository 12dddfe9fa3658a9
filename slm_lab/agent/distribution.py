"""Action distributions that draw from a given generator.

torch.distributions samples from the global generator and validates its arguments at every call;
these do neither. Shapes: B batch (any leading shape), A action dimensions.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor

from slm_lab.core.errors import LabError

LOG_STD_RANGE = (-20.0, 2.0)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(ABC):
    """A batch of distributions over actions."""

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Tensor:
        """One action each, (B,) or (B, A); draws from `generator` only."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log density or log mass of `action`, (B,)."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, (B,)."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The most likely action, (B,) or (B, A)."""


class Categorical(Distribution):
    """Over A discrete actions, from logits (B, A)."""

    def __init__(self, logits: Tensor) -> None:
        self.log_p = logits.log_softmax(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B,) int64, by the Gumbel-max trick: −log of an exponential variable is Gumbel."""
        exponential = torch.empty_like(self.log_p).exponential_(generator=generator)
        return (self.log_p - exponential.log_()).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """(B,) from action (B,) int64."""
        return self.log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """−Σ p log p, (B,)."""
        return -(self.log_p.exp() * self.log_p).sum(-1)

    def mode(self) -> Tensor:
        """(B,) int64."""
        return self.log_p.argmax(-1)


class DiagonalNormal(Distribution):
    """Independent normal distributions, from mean and log standard deviation, both (B, A)."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.clamp(*LOG_STD_RANGE)

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A)."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, action: Tensor) -> Tensor:
        """−½((a − μ)/σ)² − log σ − ½ log 2π, summed over A: (B,)."""
        scaled = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled * scaled - self.log_std - _HALF_LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Σ (½ + ½ log 2π + log σ), (B,)."""
        return (self.log_std + (0.5 + _HALF_LOG_2PI)).sum(-1)

    def mode(self) -> Tensor:
        """(B, A)."""
        return self.mean


@dataclass(frozen=True)
class CategoricalFamily:
    """Makes a Categorical from what the policy network puts out."""

    num_actions: int

    @property
    def param_dim(self) -> int:
        """Outputs that the network must have."""
        return self.num_actions

    @property
    def free_log_std_dim(self) -> int:
        """Size of a state-independent log σ; a categorical has none."""
        return 0

    action_shape: tuple[int, ...] = ()
    action_dtype: type = np.int64

    def __call__(self, params: Tensor) -> Distribution:
        """The distribution with logits `params`, (B, num_actions)."""
        return Categorical(params)


@dataclass(frozen=True)
class NormalFamily:
    """Makes a DiagonalNormal from what the policy network puts out: A means, then A log σ."""

    action_dim: int

    @property
    def param_dim(self) -> int:
        """Outputs that the network must have."""
        return 2 * self.action_dim

    @property
    def free_log_std_dim(self) -> int:
        """How many of the last outputs may be one learned vector that ignores the state."""
        return self.action_dim

    @property
    def action_shape(self) -> tuple[int, ...]:
        """(A,)."""
        return (self.action_dim,)

    action_dtype: type = np.float32

    def __call__(self, params: Tensor) -> Distribution:
        """The distribution with mean and log σ in `params`, (B, 2A)."""
        mean, log_std = params.chunk(2, -1)
        return DiagonalNormal(mean, log_std)


DistributionFamily = CategoricalFamily | NormalFamily


def distribution_family(action_space: gymnasium.Space[object], pdtype: str) -> DistributionFamily:
    """The family that `action_pdtype` names for this action space of one environment.

    Raises LabError when the two do not fit.
    """
    if isinstance(action_space, gymnasium.spaces.Discrete):
        if pdtype in ("default", "Categorical"):
            return CategoricalFamily(int(action_space.n))
        allowed = '"Categorical"'
    elif isinstance(action_space, gymnasium.spaces.Box) and len(action_space.shape) == 1:
        if pdtype in ("default", "Normal"):
            return NormalFamily(action_space.shape[0])
        allowed = '"Normal"'
    else:
        raise LabError(
            f"no action distribution for the action space {action_space}: "
            "Discrete and one-dimensional Box spaces have one"
        )
    raise LabError(
        f"agent.algorithm.action_pdtype = {pdtype!r}: the environment's actions are "
        f'{action_space}; use "default" or {allowed}'
    )
