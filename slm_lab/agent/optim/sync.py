"""Where a parallel mode meets the optimizer: before and after each step."""

from typing import Protocol

from slm_lab.agent.optim.flat import FlatParameters


class GradientSync(Protocol):
    """What a way of parallel training does around one optimizer step. Algorithms never see it."""

    def before_step(self, flat: FlatParameters) -> None:
        """After backward, before clipping: `flat.grad` may be replaced in place."""

    def after_step(self, flat: FlatParameters) -> None:
        """After the step: `flat.vector` may be replaced in place."""


class NoSync:
    """Independent training: nothing is exchanged."""

    def before_step(self, flat: FlatParameters) -> None:
        """Leaves the gradient as it is."""

    def after_step(self, flat: FlatParameters) -> None:
        """Leaves the parameters as they are."""
