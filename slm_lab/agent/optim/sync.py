"""Where a way of parallel training meets the optimizer. Algorithms never see it."""

from typing import Protocol, final

from torch import Tensor

from slm_lab.agent.optim.flat import FlatParameters


class GradientSync(Protocol):
    """What a way of parallel training does around each step of one optimizer."""

    def begin(self) -> None:
        """A training event begins."""

    def before_step(self, flat: FlatParameters) -> None:
        """After backward, before clipping: `flat.grad` may be replaced in place."""

    def stepped(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The vector (P,) that the step changes, and the gradient that it takes, clipped."""

    def after_step(self, flat: FlatParameters) -> None:
        """After the step: `flat.vector` may be replaced in place."""


@final
class NoSync:
    """Independent training: nothing is exchanged."""

    def begin(self) -> None:
        """Nothing to note."""

    def before_step(self, flat: FlatParameters) -> None:
        """Leaves the gradient as it is."""

    def stepped(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The network's own."""
        return flat.vector, flat.grad

    def after_step(self, flat: FlatParameters) -> None:
        """Leaves the parameters as they are."""
