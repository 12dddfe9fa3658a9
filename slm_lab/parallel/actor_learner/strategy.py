"""Actor–learner training: a Session that learns from actors' unrolls and never acts
itself."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeAlias, final

from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.core.process import importing
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.actor_learner.experience import (
    LOOK_SECONDS,
    OnPolicyExperience,
    ReplayExperience,
)
from slm_lab.parallel.actor_learner.inference import InferenceServer
from slm_lab.parallel.actor_learner.queue import LearnerQueue, UnrollQueue
from slm_lab.parallel.actor_learner.serial import LocalActors, SerialSource
from slm_lab.parallel.actor_learner.simulated import SimulatedSource
from slm_lab.parallel.actor_learner.source import PipelineStats, UnrollSource
from slm_lab.parallel.actor_learner.unroll import UnrollMemory
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.virtual.simulation import Simulation
from slm_lab.parallel.wait import START_SECONDS, wait_until
from slm_lab.session.experience import Clock, Experience
from slm_lab.session.pace import Pace
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.status_board import TO_BEGIN, StatusBoard
from slm_lab.session.strategy import Blueprint, JointCheckpoint, StartBarrier, Strategy
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec

MakeSource: TypeAlias = Callable[[StatusBoard, LearningAgent, VectorEnv], UnrollSource]
"""Makes a learner's source from its agent and the environment that holds the
statistics."""


@final
class LearnerStrategy(Strategy, StartBarrier, JointCheckpoint):
    """The strategy of the Session that learns from N actors. It starts when its actors
    can act, and dismisses them before its last checkpoint, which it saves alone. Its
    pauses do not count as actors' waits."""

    columns = PipelineStats.columns

    def __init__(
        self,
        spec: Spec,
        make_source: MakeSource,
        status_board: StatusBoard,
        _: int,
        pace: Pace | None = None,
    ) -> None:
        flow = spec.meta.actor_learner
        self._replays = spec.agent.algorithm.replays
        self._make_source = make_source
        self._of_spaces = spec.of_spaces().env.first_index - spec.env.first_index
        self._status_board = status_board
        correction = flow.correction
        blueprint = Blueprint(
            status_board.clock_slots[:1],  # counts what was learned from
            0,
            self.columns,
            spec.meta.max_session,
            correction=(
                None
                if correction.name == "none"
                else VTrace(correction.rho_bar, correction.c_bar)
            ),
            make_memory=None
            if self._replays
            else lambda layout: UnrollMemory(flow.learn_queue, layout.is_packed),
        )
        super().__init__(blueprint, barrier=self, checkpoint=self, pace=pace)
        self._cpu_t_before = 0.0

    @override
    def wait_for_start(self) -> None:
        """Waits until all actors can act, so that their start is not counted as
        training."""
        wait_until(self._may_begin, START_SECONDS, LOOK_SECONDS)

    def _may_begin(self) -> bool:
        self._source.poll()
        status_board = self._status_board
        starting = any(
            status_board.phase(actor) in TO_BEGIN
            for actor in range(1, status_board.num_sessions)
        )
        return not starting or status_board.stop_requested

    @override
    def resume(self) -> None:
        self._source.pause_actors(False)
        if not self.pace.is_virtual:  # there a pause takes no time
            self._experience.stats.resume(self._source.seconds)

    @override
    def pause(self) -> None:
        self._source.pause_actors(True)
        self._experience.stats.pause(self._source.seconds)

    @override
    def final_state(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        self._status_board.saving[0] = 1
        self._source.end()
        return copy()

    @override
    def env_spec(self, env: EnvSpec) -> EnvSpec:
        """One environment that is never stepped; it provides spaces and holds
        statistics."""
        first_index = env.first_index + self._of_spaces
        single = {
            "num_envs": 1,
            "vectorization_mode": "sync",
            "first_index": first_index,
        }
        return env.model_copy(update=single)

    @override
    def experience(
        self, spec: Spec, agent: LearningAgent, env: VectorEnv, clock: Clock
    ) -> Experience:
        kind = ReplayExperience if self._replays else OnPolicyExperience
        self._source = self._make_source(self._status_board, agent, env)
        self._experience = kind(
            source=self._source,
            agent=agent,
            env=env,
            clock=clock,
            spec=spec,
            pace=self.pace,
        )
        return self._experience

    @override
    def join(self, agent: LearningAgent, env: VectorEnv) -> None:
        if self._source.weights.count == 0:
            self._experience.publish()

    @override
    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
        self._experience.learned()
        return report

    @override
    def report(self, seconds: float) -> dict[str, float]:
        return self._experience.stats.report(seconds, self._source.seconds)

    @override
    def cpu_t(self, learner_seconds: float) -> float:
        return learner_seconds + self._cpu_t_before + self._source.seconds.cpu_t

    @override
    def state_dict(self) -> StateDict:
        return {
            **super().state_dict(),
            "cpu_t_of_actors": self._cpu_t_before + self._source.seconds.cpu_t,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        counted = self._source.seconds.cpu_t  # of a source that was restored
        self._cpu_t_before = float(state["cpu_t_of_actors"]) - counted


def queue_source(
    spec: Spec,
    queue: UnrollQueue,
    seeds: SessionSeeds,
    status_board: StatusBoard,
    _: LearningAgent,
    env: VectorEnv,
) -> UnrollSource:
    """Actors in separate processes on one machine. `seeds` are the learner's; with
    central inference its actions are drawn from them."""
    if queue.request_records is None:
        return LearnerQueue(queue, status_board)
    layout = queue.layout.steps
    agent = build_agent(
        spec=spec.agent.model_copy(update={"memory": None}),
        layout=env.layout,
        action_space=env.action_space,
        num_envs=layout.num_envs * spec.meta.max_session,
        seeds=AgentSeeds(seeds.init, seeds.action, seeds.sampling),
    )
    return LearnerQueue(
        queue,
        status_board,
        InferenceServer(queue.request_records, agent, queue.weights),
    )


def serial_source(
    task: SessionTask, status_board: StatusBoard, *_: object
) -> UnrollSource:
    """Actors in the learner's process, in turn; `task` is the learner's."""
    return SerialSource(LocalActors(task, status_board))


def simulated_strategy(
    task: SessionTask, simulation: Simulation, status_board: StatusBoard, _: int
) -> Strategy:
    """The strategy of a learner and its actors in virtual time, in one process."""
    spec = task.spec.as_learned()
    pace = simulation.pace_alone(0)

    def make_source(
        status_board: StatusBoard, agent: LearningAgent, env: VectorEnv
    ) -> UnrollSource:
        actors = LocalActors(task, status_board)
        frames_left = spec.env.max_frame
        unroll = spec.unroll_length * spec.env.num_envs
        return SimulatedSource(
            actors=actors,
            pace=pace,
            draws=[simulation.draws(1 + n) for n in range(actors.num_actors)],
            slowdown=simulation.slowdown,
            max_unrolls=-(-frames_left // unroll),
        )

    return LearnerStrategy(spec, make_source, status_board, 0, pace=pace)


def ray_source(
    task: SessionTask,
    losses: Connection,
    status_board: StatusBoard,
    agent: LearningAgent,
    env: VectorEnv,
) -> UnrollSource:
    """Actors on the nodes of a Ray cluster. `task` is the learner's, with the actors'
    spec. `losses` sends the results of actors that are lost for good to the Trial's
    parent."""
    with importing():
        from slm_lab.parallel.actor_learner.ray_source import RaySource

    return RaySource(
        task=task, status_board=status_board, agent=agent, env=env, lost=losses
    )
