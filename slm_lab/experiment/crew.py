"""The Sessions that train together, as one of them sees the others."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol, final

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.types import StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.acting import Acting, Experience
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.progress import Board
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec


class Wish(IntEnum):
    """What a Session meets the others for. Of several wishes the largest is granted to all."""

    LEARN = 0
    FINISH = 1
    """The budget is spent, or the target reached."""
    STOP = 2
    """The user has asked for the end."""
    EVALUATE = 3
    SAVE = 4
    ACT = 5
    """Nobody's wish: granted where one took the budget for spent, and hears that it is not. It acts
    on; who has wished for something else comes again."""

    @property
    def is_end(self) -> bool:
        """Whether no step follows."""
        return self in (Wish.FINISH, Wish.STOP)


class Crew(ABC):
    """What a Session does because it does not train alone: by default nothing."""

    columns: tuple[str, ...] = ()
    """The columns that `report` fills."""
    size = 1
    """How many Sessions the rows of this one are about."""
    leads = True
    """Whether this Session writes rows, evaluations and videos, and decides when to save."""

    @abstractmethod
    def clock(self, max_frame: int) -> Clock:
        """The clock that the frame budget is counted on."""

    @property
    def correction(self) -> VTrace | None:
        """What the learner does about samples of an older policy."""
        return None

    make_memory: Callable[[MemoryLayout], Memory[Any]] | None = None
    """Makes another memory than the spec asks for."""

    def env_spec(self, env: EnvSpec) -> EnvSpec:
        """The environments that this Session makes itself."""
        return env

    def experience(self, spec: Spec, agent: Agent, env: VectorEnv, clock: Clock) -> Experience:
        """Where its steps come from."""
        return Acting(agent, env, clock, spec.env.name)

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """Makes weights and statistics of a fresh or restored Session those of all."""

    def assemble(self) -> None:
        """Before the first step waits, for a bounded time, until the others can take theirs."""

    def enter(self) -> None:
        """Waits, for a bounded time, until the next step may be taken."""

    def stand_aside(self) -> None:
        """Until `enter`, this Session changes nothing that all have: none need wait for it."""

    def show_progress(self) -> None:
        """Lets it be seen that this Session gets on with something that is no step."""

    def refresh(self) -> None:
        """Before acting and before learning."""

    def meet(self, wish: Wish, num_samples: int = 1) -> Wish:
        """Comes to the others with a wish; the one that is granted to all, this one among them.

        Who has not been granted its own does with the others what was, and comes again; unless it
        is `ACT`, see there.
        `num_samples` is how many samples it is about to learn from.
        """
        return wish

    def tell(self, finished: FinishedEpisodes) -> None:
        """Has the episodes that have just ended told to the one that writes the rows."""

    def heard(self) -> Sequence[FinishedEpisodes]:
        """Episodes of the others, as environments that are numbered after this one's own."""
        return ()

    def learned(self, report: dict[str, float], cpu_t: Callable[[], float]) -> dict[str, float]:
        """After a training event: its report, of all where they learn in step with each other.

        `cpu_t` tells the CPU seconds of this Session so far.
        """
        return report

    def cpu_t(self, own: float) -> float:
        """CPU seconds of all that the rows of this Session are about."""
        return own

    def report(self, seconds: float) -> dict[str, float]:
        """What `columns` are to show of the `seconds` since the last row."""
        return {}

    def part_of(self, num_envs: int) -> int:
        """How many of the environments of an evaluation are this Session's."""
        return num_envs

    def evaluated(self, episodes: FinishedEpisodes | None) -> FinishedEpisodes | None:
        """The episodes of an evaluation in which each had its part; None where one was stopped."""
        return episodes

    @property
    def saves_at_rows(self) -> bool:
        """Whether a Session decides by itself, or for all, when to save."""
        return True

    @property
    def asks_to_save(self) -> bool:
        """Whether all are to save at their next step boundary."""
        return False

    def save_together(self, copy: Callable[[], StateDict]) -> StateDict | None:
        """Stands still with all others while each makes a `copy` of its state, which is returned.

        None where someone did not stand still in time: then nothing is to be saved. The optimizers'
        state, which all have in common, is in the copy of one only.
        """
        return copy()

    def paused(self, seconds: float) -> None:
        """Tells how long the last checkpoint has kept this Session from training."""

    def all_have_written(self) -> None:
        """Waits until the checkpoints of all are on the disk, so that all or none become valid."""

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """The copy that is made at the end, even if someone does not come in time."""
        return copy()

    def state_dict(self) -> StateDict:
        """What the next meeting depends on."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it, before `join`."""

    @property
    def solved(self) -> bool:
        """Whether another has reached the return at which the training ends."""
        return False

    def declare_solved(self) -> None:
        """Tells the others that it was reached."""


class MeetingPoint(Protocol):
    """What Sessions that train together have in common, made by the Trial before they begin."""

    def crew(self, board: Board, worker: int) -> Crew:
        """The crew as Session number `worker` of them sees it; `board` is that of theirs."""


@final
class Alone(Crew):
    """An independent seed, with the whole budget to itself."""

    def __init__(self, board: Board, session: int) -> None:
        self._slots = board.clock_slots[session : session + 1]

    def clock(self, max_frame: int) -> Clock:
        """See `Crew`."""
        return Clock(self._slots, 0, max_frame)
