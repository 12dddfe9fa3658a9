"""What every action distribution does."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Distribution(ABC):
    """A batch of distributions over actions."""

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
