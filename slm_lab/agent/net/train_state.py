"""The trainable units of an agent: each a flat vector with its optimizer."""

from collections.abc import Mapping, Sequence

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.agent.optim.process_group import ProcessGroup, SoloGroup
from slm_lab.core.types import StateDict


class TrainState:
    """Optimizers by name, the actor's first; and the target networks that follow."""

    def __init__(
        self, optimizers: Mapping[str, Optimizer], targets: Sequence[FlatParameters] = ()
    ) -> None:
        self.optimizers = dict(optimizers)
        self.targets = tuple(targets)
        self.group: ProcessGroup = SoloGroup()
        """Who has to agree with what is learned from the samples of all."""

    @property
    def flats(self) -> dict[str, FlatParameters]:
        """The flat vectors by name."""
        return {name: optimizer.flat for name, optimizer in self.optimizers.items()}

    @property
    def lr(self) -> float:
        """The learning rate of the actor's optimizer now."""
        return next(iter(self.optimizers.values())).learning_rate.value

    def set_frame(self, frame: int) -> None:
        """Tells the learning-rate schedules where the run is: a training event begins."""
        for optimizer in self.optimizers.values():
            optimizer.begin_event(frame)

    def state_dict(self) -> StateDict:
        """Parameters, statistics and optimizer state of every unit."""
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores every unit in place."""
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])
