"""Learning rates that change over a run."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override


class LearningRate:
    """A constant learning rate; in subclasses a function of the trial's frame clock.
    Stateless but for its value."""

    def __init__(self, lr: float) -> None:
        self.value = lr

    def set_frame(self, frame: int) -> None:
        """Moves the schedule to `frame`; called once before each training event."""


class LinearRate(LearningRate):
    """From `lr` down to `min_factor · lr` at `frame` frames, then constant."""

    def __init__(self, lr: float, frame: float, min_factor: float = 0.0) -> None:
        super().__init__(lr)
        self._lr = lr
        self._last_frame = frame
        self._min_factor = min_factor

    @override
    def set_frame(self, frame: int) -> None:
        """lr · max(1 − (1 − min_factor) · frame / last frame, min_factor)."""
        progress = min(frame / self._last_frame, 1.0)
        self.value = self._lr * (1 - (1 - self._min_factor) * progress)


class TorchRate(LearningRate):
    """Any scheduler of torch.optim.lr_scheduler, with frames for its epochs. It drives
    the learning rate of a dummy optimizer, so that one implementation serves every
    update rule. Torch computes the rate at any epoch, so nothing has to be counted."""

    def __init__(self, lr: float, name: str, args: Mapping[str, Any]) -> None:
        self._stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
        self._scheduler = getattr(torch.optim.lr_scheduler, name)(
            self._stand_in, **args
        )
        # of OneCycleLR
        self._last = int(getattr(self._scheduler, "total_steps", 0)) - 1
        super().__init__(self._current())

    @override
    def set_frame(self, frame: int) -> None:
        """The rate at epoch `frame`; a one-cycle policy stays at its end."""
        epoch = frame
        if self._last >= 0:
            epoch = min(frame, self._last)
        with warnings.catch_warnings():  # torch prefers to count epochs itself
            warnings.simplefilter("ignore", UserWarning)
            self._scheduler.step(epoch)
        self.value = self._current()

    def _current(self) -> float:
        return float(self._stand_in.param_groups[0]["lr"])


def build_learning_rate(lr: float, name: str, args: Mapping[str, Any]) -> LearningRate:
    """The schedule of this name in a spec."""
    if name in ("LinearToZero", "LinearToMin"):
        return LinearRate(lr, **args)
    return TorchRate(lr, name, args)
