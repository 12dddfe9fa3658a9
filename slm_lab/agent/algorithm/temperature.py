"""The weight α of the entropy in soft actor-critic: tuned, or on a schedule."""

import math
from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.algorithm.report import mean, number
from slm_lab.agent.optim.optimizer import Loss, Optimizer
from slm_lab.agent.optim.rule import Number
from slm_lab.agent.schedule import Schedule


class Temperature:
    """α on a schedule of the spec: constant, or annealed."""

    optimizer: Optimizer | None = None
    """The optimizer of ln α; None if α is not tuned."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def scheduled(self, frame: int) -> float:
        """α by the schedule at the trial's clock `frame`; of a tuned α zero."""
        return self._schedule.at(frame)

    def alpha(self, scheduled: Number) -> Number:
        """α, given that by the schedule."""
        return scheduled

    def update(self, entropy: Tensor) -> None:
        """Updates a tuned α from the policy's entropies (B,)."""


class LogAlpha(nn.Module):
    """One trained number, ln α."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start))


@final
class TunedTemperature(Temperature):
    """α rises while the entropy is below its target and falls while it is above. One
    gradient step on ln α (H − H̄): eq. 18 of arXiv:1812.05905 with ln α for α, as in
    its authors' code. Its optimizer keeps ln α between two bounds."""

    def __init__(
        self, log_alpha: LogAlpha, optimizer: Optimizer, target_entropy: float
    ) -> None:
        self.log_alpha = log_alpha.value
        self.loss: Callable[[nn.Parameter, Number], Loss] = _loss
        self.optimizer: Optimizer = optimizer
        # α stays where entropies equal it
        self._target_entropy = float(np.float32(target_entropy))

    @override
    def scheduled(self, frame: int) -> float:
        return 0.0

    @override
    def alpha(self, scheduled: Number) -> Number:
        log_alpha = number(self.log_alpha)
        return log_alpha.exp() if isinstance(log_alpha, Tensor) else math.exp(log_alpha)

    @override
    def update(self, entropy: Tensor) -> None:
        surplus = mean(entropy) - self._target_entropy
        self.optimizer.step(self.loss(self.log_alpha, surplus))


def _loss(log_alpha: Tensor, surplus: Number) -> Tensor:
    """ln α (H − H̄) by autograd."""
    return log_alpha * surplus
