"""The interface of a learner's source of unrolls."""

from abc import abstractmethod
from typing import NamedTuple

from slm_lab.core.state import SavedFields
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.parallel.actor_learner.weights import WeightStore


class ActorSeconds(NamedTuple):
    """Seconds of all actors so far."""

    waited: float
    """For slots and replies."""
    acted: float
    cpu_t: float
    """CPU time of their processes."""


class UnrollSource(SavedFields):
    """A source of unrolls, as the learner uses it. By default its actors run
    elsewhere."""

    weights: WeightStore
    """The weights that the actors use; the learner publishes into it."""
    num_actors: int
    num_slots: int
    """Unrolls of one actor that can wait or be held by the learner."""

    def begin(self) -> None:
        """Starts the first episodes."""

    def poll(self) -> None:
        """Starts and replaces actors, and requests unrolls."""

    @abstractmethod
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The oldest waiting unroll and its actor; None if none arrives within
        `seconds`. It does not change until `give_back`."""

    @abstractmethod
    def give_back(self, actor: int) -> None:
        """Releases the oldest unroll of this actor that the learner holds."""

    @property
    @abstractmethod
    def is_exhausted(self) -> bool:
        """Whether no more unrolls will come."""

    @property
    def has_failed(self) -> bool:
        """Whether an environment of an actor in this process has raised an
        exception."""
        return False

    @property
    @abstractmethod
    def seconds(self) -> ActorSeconds:
        """How the actors have spent their time."""

    def pause_actors(self, paused: bool) -> None:
        """Notes whether the learner pauses. Meanwhile actors wait without a limit."""

    def end(self) -> None:
        """Ends the actors: no more unrolls are needed."""

    @abstractmethod
    def close(self) -> None:
        """Frees environments and connections."""
