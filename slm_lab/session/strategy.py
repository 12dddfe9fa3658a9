"""Extension points through which a parallel mode changes a Session.

A `Strategy` consists of small parts, one for each job. The defaults fit an independent
Session, so a mode of parallel training overrides only what it adds."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.core.state import SavedFields
from slm_lab.core.types import IntArray, StateDict
from slm_lab.env.vector_env import FinishedEpisodes, VectorEnv
from slm_lab.session.build import MakeMemory
from slm_lab.session.experience import Acting, Clock, Experience
from slm_lab.session.pace import Pace
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec


class Vote(IntEnum):
    """A Session's proposal for its next act. The largest of several proposals is
    granted to all."""

    LEARN = 0
    FINISH = 1
    """The budget is spent, or the target return is reached."""
    STOP = 2
    """The user has requested a stop."""
    EVALUATE = 3
    SAVE = 4
    KEEP = 5
    """SAVE, and the checkpoint is kept for forks."""
    ACT = 6
    """The reply to FINISH while the total budget is not spent. The proposer keeps
    acting; the others vote again."""

    @property
    def is_end(self) -> bool:
        """Whether no step follows."""
        return self in (Vote.FINISH, Vote.STOP)


@dataclass(frozen=True)
class Blueprint:
    """The settings a Session is built with."""

    clock_slots: IntArray
    """(W,) frames of the Sessions that share the budget."""
    index: int
    """This Session's index in `clock_slots`."""
    columns: tuple[str, ...] = ()
    """The columns of rows that `Strategy.report` fills."""
    num_sessions: int = 1
    """The number of Sessions that this one's rows cover."""
    leads: bool = True
    """Whether this Session writes rows, evaluations and videos."""
    correction: VTrace | None = None
    """The learner's correction for samples of an older policy."""
    make_memory: MakeMemory | None = None
    """Makes a memory that replaces the spec's."""


class StartBarrier:
    """A Session's waits for its peers, each bounded. By default nothing waits."""

    def wait_for_start(self) -> None:
        """Waits, before the first step, until the peers can take theirs."""

    def resume(self) -> None:
        """Waits until the next step may be taken; ends a pause."""

    def pause(self) -> None:
        """Pauses: until `resume` this Session changes nothing shared, and no peer waits
        for it."""


class Ballot:
    """The agreement of Sessions on what comes next. By default every proposal is
    granted."""

    def agree(self, vote: Vote, num_samples: int = 1) -> Vote:
        """Proposes `vote`; returns the vote that is granted to all. A Session whose
        proposal was not granted executes the granted vote, then proposes again; see
        also `Vote.ACT`. `num_samples` is the number of samples it is about to learn
        from."""
        return vote

    @property
    def solved(self) -> bool:
        """Whether a peer has reached the target return."""
        return False

    def declare_solved(self) -> None:
        """Reports to the peers that this Session has reached the target return."""

    def stop_peers(self) -> None:
        """Asks peers that do not vote to stop where this Session does."""


class EpisodeExchange:
    """Sends episodes to the Session that writes the rows. By default each keeps its
    own."""

    def send(self, finished: FinishedEpisodes) -> None:
        """Sends episodes that have just ended."""

    def received(self) -> Sequence[FinishedEpisodes]:
        """Episodes of the peers. Their environments are numbered after this Session's
        own."""
        return ()

    def eval_share(self, num_envs: int) -> int:
        """The number of an evaluation's `num_envs` environments that this Session
        plays."""
        return num_envs

    def gather_evaluation(
        self, episodes: FinishedEpisodes | None
    ) -> FinishedEpisodes | None:
        """The episodes of all shares of an evaluation; None if one was stopped."""
        return episodes


class JointCheckpoint:
    """A checkpoint that several Sessions make together. By default a Session saves
    alone."""

    saves_at_rows: bool = True
    """Whether this Session saves after rows, on its own schedule."""

    @property
    def is_requested(self) -> bool:
        """Whether all Sessions should save at their next step boundary."""
        return False

    ends_jointly: bool = False
    """Whether a replay ends only after a joint checkpoint. Peers that take turns would
    lose their order if one stopped elsewhere."""

    def ask(self) -> None:
        """Requests a joint checkpoint, unless one is requested already. By default
        nothing happens: a Session saves alone."""

    def joint_state(self, copy: Callable[[], StateDict]) -> StateDict | None:
        """Pauses with all peers while each makes a `copy` of its state; returns the
        copy. None if a peer did not pause in time; then nothing is saved. Exactly one
        of the copies holds the optimizers' shared state."""
        return copy()

    def commit_barrier(self) -> None:
        """Waits until all Sessions' files are on disk, so that all or none become
        valid."""

    def final_state(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        """The copy made at the end, even if a peer does not pause in time. `finished`:
        the training is over; otherwise it was stopped and may be resumed."""
        return copy()


class Strategy(SavedFields):
    """The part of a Session that trains with others; the base class is for an
    independent Session. A resumed Session loads its state before `join`."""

    saved: ClassVar = {"pace": "pace"}
    optional: ClassVar[Collection[str]] = ("pace",)  # older ones lack it

    def __init__(
        self,
        blueprint: Blueprint,
        barrier: StartBarrier | None = None,
        ballot: Ballot | None = None,
        episodes: EpisodeExchange | None = None,
        checkpoint: JointCheckpoint | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.barrier = barrier or StartBarrier()
        self.ballot = ballot or Ballot()
        self.episodes = episodes or EpisodeExchange()
        self.checkpoint = checkpoint or JointCheckpoint()
        self.pace = pace or Pace()

    def clock(self, max_frame: int) -> Clock:
        """The clock that counts the frame budget."""
        return Clock(self.blueprint.clock_slots, self.blueprint.index, max_frame)

    def env_spec(self, env: EnvSpec) -> EnvSpec:
        """The environments that this Session makes."""
        return env

    def experience(
        self, spec: Spec, agent: LearningAgent, env: VectorEnv, clock: Clock
    ) -> Experience:
        """The source of its steps; by default it acts in its own environments."""
        return Acting(
            agent=agent,
            env=env,
            clock=clock,
            env_name=spec.env.name,
            pace=self.pace,
        )

    def join(self, agent: LearningAgent, env: VectorEnv) -> None:
        """Shares the weights and statistics of a fresh or restored Session."""

    def refresh(self) -> None:
        """Called before acting and before learning."""

    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
        """Called after a training event; returns its report, averaged over Sessions in
        step. `cpu_t` are the CPU seconds of this Session so far."""
        return report

    def report(self, seconds: float) -> dict[str, float]:
        """The values of `Blueprint.columns` for the `seconds` since the last row."""
        return {}

    def cpu_t(self, own_seconds: float) -> float:
        """CPU seconds of all Sessions that this one's rows cover; `own_seconds` are its
        own."""
        return own_seconds


StrategyFactory: TypeAlias = Callable[[StatusBoard, int], Strategy]
"""Makes the strategy of Session number i in a group that trains together; it must
pickle."""


def independent(status_board: StatusBoard, session: int) -> Strategy:
    """The strategy of an independent Session with its own frame budget."""
    return Strategy(Blueprint(status_board.clock_slots[session : session + 1], 0))
