"""Actor–learner training: a Session that learns from actors' unrolls and never acts itself."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import final

from typing_extensions import override

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.core.process import importing
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.actor_learner.experience import (
    LOOK_SECONDS,
    ActorExperience,
    OnPolicyExperience,
    ReplayExperience,
)
from slm_lab.parallel.actor_learner.inference import InferenceServer
from slm_lab.parallel.actor_learner.queue import LearnerQueue, UnrollQueue
from slm_lab.parallel.actor_learner.serial import SerialSource
from slm_lab.parallel.actor_learner.source import ActorSeconds, UnrollSource
from slm_lab.parallel.actor_learner.stats import PipelineStats
from slm_lab.parallel.actor_learner.unroll import UnrollMemory
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.wait import wait_until
from slm_lab.session.clock import Clock
from slm_lab.session.experience import Experience
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.status_board import TO_BEGIN, StatusBoard
from slm_lab.session.strategy import Blueprint, JointCheckpoint, StartBarrier, Strategy
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import as_learned

START_SECONDS = 60.0
"""How long the learner waits at most for its actors to start."""


@final
class LearnerActors(StartBarrier, JointCheckpoint):
    """The learner starts when its actors can act, and dismisses them before its last checkpoint.

    Its pauses do not count as actors' waits. It saves alone.
    """

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._paused_at = ActorSeconds(0.0, 0.0, 0.0)
        """The actors' seconds when the learner paused."""
        self.experience: ActorExperience

    @override
    def wait_for_start(self) -> None:
        """Waits until all actors can act, so that their start is not counted as training."""
        wait_until(self._may_begin, START_SECONDS, LOOK_SECONDS)

    def _may_begin(self) -> bool:
        self.experience.source.poll()
        board = self._board
        starting = any(board.phase(actor) in TO_BEGIN for actor in range(1, board.num_sessions))
        return not starting or board.stop_requested

    @override
    def resume(self) -> None:
        source, before = self.experience.source, self._paused_at
        source.pause_actors(False)
        now = source.seconds
        self.experience.stats.restart(now.waited - before.waited, now.acted - before.acted)

    @override
    def pause(self) -> None:
        self.experience.source.pause_actors(True)
        self._paused_at = self.experience.source.seconds

    @override
    def final_copy(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        self._board.saving[0] = 1
        self.experience.source.end()
        return copy()


@final
class LearnerStrategy(Strategy):
    """The strategy of the Session that learns from N actors."""

    columns = PipelineStats.columns

    def __init__(
        self,
        spec: Spec,
        board: StatusBoard,
        make_source: Callable[[Agent, VectorEnv], UnrollSource],
    ) -> None:
        self._actors = LearnerActors(board)
        flow = spec.meta.actor_learner
        self._replays = isinstance(spec.agent.algorithm, ReplayLearningSpec)
        self._make_source = make_source
        correction = flow.correction
        blueprint = Blueprint(
            board.clock_slots[:1],  # counts what was learned from
            0,
            self.columns,
            spec.meta.max_session,
            correction=(
                None if correction.name == "none" else VTrace(correction.rho_bar, correction.c_bar)
            ),
            make_memory=None if self._replays else lambda layout: UnrollMemory(flow.learn_queue),
        )
        super().__init__(blueprint, self._actors, checkpoint=self._actors)
        self._cpu_t_before = 0.0

    @override
    def env_spec(self, env: EnvSpec) -> EnvSpec:
        """One environment that is never stepped; it provides spaces and holds statistics."""
        return env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})

    @override
    def experience(self, spec: Spec, agent: Agent, env: VectorEnv, clock: Clock) -> Experience:
        kind = ReplayExperience if self._replays else OnPolicyExperience
        experience = kind(self._make_source(agent, env), agent, env, clock, spec)
        self._experience = self._actors.experience = experience
        return experience

    @override
    def join(self, agent: Agent, env: VectorEnv) -> None:
        """Publishes the actors' initial weights."""
        if self._experience.source.weights.count == 0:
            self._experience.publish()

    @override
    def learned(self, report: dict[str, float], cpu_t: Callable[[], float]) -> dict[str, float]:
        self._experience.learned()
        return report

    @override
    def report(self, seconds: float) -> dict[str, float]:
        actors = self._experience.source.seconds
        return self._experience.stats.report(seconds, actors.waited, actors.acted)

    @override
    def cpu_t(self, own: float) -> float:
        """Adds the actors' CPU seconds."""
        return own + self._cpu_t_before + self._experience.source.seconds.cpu_t

    @override
    def state_dict(self) -> StateDict:
        return {"cpu_t_of_actors": self._cpu_t_before + self._experience.source.seconds.cpu_t}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._cpu_t_before = float(state["cpu_t_of_actors"])


def in_processes(
    spec: Spec, queue: UnrollQueue, seeds: SessionSeeds, board: StatusBoard, worker: int
) -> Strategy:
    """With actors in separate processes on one machine.

    `seeds` are the learner's; with central inference its actions are drawn from them.
    """

    def source(_: Agent, env: VectorEnv) -> UnrollSource:
        if queue.request_records is None:
            return LearnerQueue(queue, board)
        layout = queue.layout.steps
        agent = build_agent(
            spec.agent.model_copy(update={"memory": None}),
            env.observation_space,
            env.action_space,
            layout.num_envs * spec.meta.max_session,
            AgentSeeds(seeds.init, seeds.action, seeds.sampling),
        )
        server = InferenceServer(queue.request_records, agent, queue.weights)
        return LearnerQueue(queue, board, server)

    return LearnerStrategy(spec, board, source)


def serially(
    spec: Spec, root_seed: int, trial: int, first: int, board: StatusBoard, worker: int
) -> Strategy:
    """With actors in the learner's process, in turn; the first uses the seeds of Session `first`"""
    return LearnerStrategy(spec, board, lambda *_: SerialSource(spec, root_seed, trial, first))


def on_cluster(task: SessionTask, losses: Connection, board: StatusBoard, worker: int) -> Strategy:
    """With actors on the nodes of a Ray cluster.

    `task` is the learner's, with the actors' spec. `losses` reports to the Trial's parent which
    actors are lost for good, and why.
    """
    with importing():
        from slm_lab.parallel.ray.source import RaySource

    return LearnerStrategy(
        as_learned(task.spec), board, lambda agent, env: RaySource(task, board, agent, env, losses)
    )
