"""The scale of returns by percentiles, for advantages that survive sparse rewards."""

import torch
from torch import Tensor

from slm_lab.core.types import StateDict


class ReturnRange:
    """S: a moving average of the span between the 5th and 95th percentile of returns.

    Advantages are divided by max(1, S), eqs. 11 and 12 of arXiv:2301.04104: large returns are
    scaled down, small ones are not blown up.
    """

    def __init__(self, decay: float = 0.99) -> None:
        self._decay = decay
        self._span = torch.zeros(())
        self._weight = torch.zeros(())

    @torch.no_grad()
    def update(self, returns: Tensor) -> Tensor:
        """Takes in returns of any shape; the divisor max(1, S), a scalar."""
        low, high = torch.quantile(returns.flatten(), torch.tensor([0.05, 0.95]))
        self._span.lerp_(high - low, 1 - self._decay)
        self._weight.lerp_(torch.ones(()), 1 - self._decay)
        return (self._span / self._weight).clamp(min=1.0)

    def state_dict(self) -> StateDict:
        """The average and the weight that corrects its start from zero."""
        return {"span": self._span.clone(), "weight": self._weight.clone()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self._span.copy_(state["span"])
        self._weight.copy_(state["weight"])
