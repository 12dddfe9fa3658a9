"""Learning rates that change over a run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from slm_lab.core.types import StateDict


class LearningRate(ABC):
    """The learning rate now. `frame` is the trial's clock."""

    value: float

    def set_frame(self, frame: int) -> None:
        """Tells the schedule where the run is; called once before each training event."""

    def count_step(self) -> None:
        """Tells the schedule that one optimizer step was taken."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """What `load_state_dict` needs."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores the schedule."""


class ConstantRate(LearningRate):
    """The same learning rate throughout."""

    def __init__(self, lr: float) -> None:
        self.value = lr

    def state_dict(self) -> StateDict:
        """Nothing to save."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Nothing to restore."""


class LinearRate(LearningRate):
    """From `lr` down to `min_factor · lr` at `frame` frames, then constant."""

    def __init__(self, lr: float, frame: float, min_factor: float = 0.0) -> None:
        self.value = lr
        self._lr = lr
        self._last_frame = frame
        self._min_factor = min_factor

    def set_frame(self, frame: int) -> None:
        """lr · max(1 − (1 − min_factor) · frame / last frame, min_factor)."""
        progress = min(frame / self._last_frame, 1.0)
        self.value = self._lr * (1 - (1 - self._min_factor) * progress)

    def state_dict(self) -> StateDict:
        """The current value."""
        return {"value": self.value}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the current value."""
        self.value = state["value"]


class TorchRate(LearningRate):
    """Any scheduler of torch.optim.lr_scheduler, stepped once per optimizer step.

    It drives the learning rate of a stand-in optimizer, so that one implementation serves every
    update rule.
    """

    def __init__(self, lr: float, name: str, args: Mapping[str, Any]) -> None:
        self._stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
        self._scheduler = getattr(torch.optim.lr_scheduler, name)(self._stand_in, **args)
        self.value = self._current()

    def count_step(self) -> None:
        """Advances the scheduler by one."""
        self._stand_in.step()  # torch warns when a scheduler is ahead of its optimizer
        self._scheduler.step()
        self.value = self._current()

    def state_dict(self) -> StateDict:
        """The scheduler's state and the rate it has reached."""
        state = self._scheduler.state_dict()
        plain = {k: v for k, v in state.items() if isinstance(v, int | float | str | list | None)}
        return {"scheduler": plain, "value": self.value}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the scheduler and its rate."""
        self._scheduler.load_state_dict(state["scheduler"])
        for group in self._stand_in.param_groups:
            group["lr"] = state["value"]
        self.value = state["value"]

    def _current(self) -> float:
        return float(self._stand_in.param_groups[0]["lr"])


def build_learning_rate(lr: float, name: str | None, args: Mapping[str, Any]) -> LearningRate:
    """The schedule a spec names; None is a constant rate."""
    if name is None:
        return ConstantRate(lr)
    if name in ("LinearToZero", "LinearToMin"):
        return LinearRate(lr, **args)
    return TorchRate(lr, name, args)
