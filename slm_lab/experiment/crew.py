"""The Sessions that train together, as one of them sees the others."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from slm_lab.agent.agent import Agent
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.progress import Board


class Crew(ABC):
    """What a Session does because it does not train alone."""

    columns: tuple[str, ...] = ()
    """The columns that `report` fills."""

    @abstractmethod
    def clock(self, max_frame: int) -> Clock:
        """The clock that the frame budget is counted on."""

    @abstractmethod
    def join(self, agent: Agent, env: VectorEnv) -> None:
        """Makes weights and statistics of a fresh or restored Session those of all."""

    @abstractmethod
    def assemble(self) -> None:
        """Before the first step waits, for a bounded time, until the others can take theirs."""

    @abstractmethod
    def enter(self) -> None:
        """Waits, for a bounded time, until the next step may be taken."""

    @abstractmethod
    def stand_aside(self) -> None:
        """Until `enter`, this Session changes nothing that all have: none need wait for it."""

    @abstractmethod
    def refresh(self) -> None:
        """Before acting and before learning."""

    @abstractmethod
    def learned(self) -> None:
        """After a training event."""

    @abstractmethod
    def report(self, seconds: float) -> dict[str, float]:
        """What `columns` are to show of the `seconds` since the last row."""

    @property
    @abstractmethod
    def saves_at_rows(self) -> bool:
        """Whether a Session decides by itself when to save."""

    @property
    @abstractmethod
    def asks_to_save(self) -> bool:
        """Whether all are to save at their next step boundary."""

    @abstractmethod
    def save_together(self, copy: Callable[[], StateDict]) -> StateDict | None:
        """Stands still with all others while each makes a `copy` of its state, which is returned.

        None where someone did not stand still in time: then nothing is to be saved. The optimizers'
        state, which all have in common, is in the copy of one only.
        """

    @abstractmethod
    def paused(self, seconds: float) -> None:
        """Tells how long the last checkpoint has kept this Session from training."""

    @abstractmethod
    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """The same at the end: the copy is made even if someone does not come in time."""

    @property
    @abstractmethod
    def solved(self) -> bool:
        """Whether another has reached the return at which the training ends."""

    @abstractmethod
    def declare_solved(self) -> None:
        """Tells the others that it was reached."""


@final
class Alone(Crew):
    """An independent seed, with the whole budget to itself."""

    def __init__(self, board: Board, session: int) -> None:
        self._slots = board.clock_slots[session : session + 1]

    def clock(self, max_frame: int) -> Clock:
        """See `Crew`."""
        return Clock(self._slots, 0, max_frame)

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """Leaves everything as it is."""

    def assemble(self) -> None:
        """Waits for nobody."""

    def enter(self) -> None:
        """Waits for nobody."""

    def stand_aside(self) -> None:
        """Nobody waits."""

    def refresh(self) -> None:
        """Nothing to do."""

    def learned(self) -> None:
        """Nothing to do."""

    def report(self, seconds: float) -> dict[str, float]:
        """Nothing to tell."""
        return {}

    @property
    def saves_at_rows(self) -> bool:
        """Yes."""
        return True

    @property
    def asks_to_save(self) -> bool:
        """No."""
        return False

    def save_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """The copy."""
        return copy()

    def paused(self, seconds: float) -> None:
        """Nobody asks."""

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """The copy."""
        return copy()

    @property
    def solved(self) -> bool:
        """Nobody else can."""
        return False

    def declare_solved(self) -> None:
        """Nobody else listens."""
