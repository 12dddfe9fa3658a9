"""Actor–learner training: a Session that learns from what actors play, and never acts itself."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, final

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.memory.unroll import UnrollMemory
from slm_lab.core.imports import importing
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.acting import Experience
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.from_actors import LOOK_SECONDS, FromActors, Rollouts, Transitions
from slm_lab.experiment.inference import InferenceServer
from slm_lab.experiment.inlet import Inlet, InTurn
from slm_lab.experiment.pipe import LearnerEnd, Pipe
from slm_lab.experiment.progress import TO_BEGIN, Board
from slm_lab.experiment.seeding import SessionSeeds
from slm_lab.experiment.traffic import Traffic
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import as_learned

START_SECONDS = 60.0
"""How long the learner waits at most for its actors to start."""


@final
class Learning(Crew):
    """The learner of N actors, as the Session that it is."""

    columns = Traffic.columns

    def __init__(
        self, spec: Spec, board: Board, make_inlet: Callable[[Agent, VectorEnv], Inlet]
    ) -> None:
        self._board = board
        self._flow = spec.meta.actor_learner
        self._replays = isinstance(spec.agent.algorithm, ReplayLearningSpec)
        self._make_inlet = make_inlet
        self._cpu_t_before = 0.0
        self._aside_from = (0.0, 0.0)
        """What the actors had waited and acted, s, when the learner went aside."""
        self.size = spec.meta.max_session
        self.make_memory: Callable[[MemoryLayout], Memory[Any]] | None = None
        if not self._replays:
            self.make_memory = lambda layout: UnrollMemory(self._flow.learn_queue)

    @property
    def correction(self) -> VTrace | None:
        """See `Crew`."""
        given = self._flow.correction
        return None if given.name == "none" else VTrace(given.rho_bar, given.c_bar)

    def env_spec(self, env: EnvSpec) -> EnvSpec:
        """One that is never stepped: for its spaces, and for the statistics of all."""
        return env.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"})

    def clock(self, max_frame: int) -> Clock:
        """Counts what was learned from."""
        return Clock(self._board.clock_slots[:1], 0, max_frame)

    def experience(self, spec: Spec, agent: Agent, env: VectorEnv, clock: Clock) -> Experience:
        """See `Crew`."""
        flow = self._flow
        unrolls = 1 if self._replays else flow.learn_queue
        traffic = Traffic(unrolls * spec.env.num_envs)
        common = self._make_inlet(agent, env), traffic, agent, env, clock, flow.publish_frequency
        if self._replays:
            self._source: FromActors = Transitions(*common, is_free=flow.train_ratio is None)
        else:
            self._source = Rollouts(*common)
        self._inlet = self._source.inlet
        return self._source

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """What actors begin with."""
        if self._inlet.weights.count == 0:
            self._source.publish()

    def assemble(self) -> None:
        """Until all actors can act, so that the time in which they start is not training."""
        actors = range(1, self._board.num_sessions)
        deadline = time.perf_counter() + START_SECONDS
        while any(self._board.phase(actor) in TO_BEGIN for actor in actors):
            if time.perf_counter() > deadline or self._board.stop_requested:
                return
            self._inlet.look()
            time.sleep(LOOK_SECONDS)

    def enter(self) -> None:
        """See `Crew`."""
        self._inlet.stand_aside(False)
        (waited, acted), before = self._inlet.waited, self._aside_from
        self._source.traffic.restart(waited - before[0], acted - before[1])

    def stand_aside(self) -> None:
        """See `Crew`."""
        self._inlet.stand_aside(True)
        self._aside_from = self._inlet.waited

    def learned(self, report: dict[str, float], cpu_t: Callable[[], float]) -> dict[str, float]:
        """See `Crew`."""
        self._source.learned()
        return report

    def report(self, seconds: float) -> dict[str, float]:
        """See `Crew`."""
        return self._source.traffic.report(seconds, *self._inlet.waited)

    def cpu_t(self, own: float) -> float:
        """With that of the actors."""
        return own + self._cpu_t_before + self._inlet.cpu_t

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """See `Crew`."""
        self._board.saving[0] = 1
        self._inlet.end()
        return copy()

    def state_dict(self) -> StateDict:
        """See `Crew`."""
        return {"cpu_t_of_actors": self._cpu_t_before + self._inlet.cpu_t}

    def load_state_dict(self, state: StateDict) -> None:
        """See `Crew`."""
        self._cpu_t_before = float(state["cpu_t_of_actors"])


@final
@dataclass(frozen=True)
class InProcesses:
    """Actors in processes of their own on one machine."""

    spec: Spec
    pipe: Pipe
    seeds: SessionSeeds
    """Of the learner; where it acts for all, its actions come from them."""

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`; the first is the learner."""
        return Learning(
            self.spec, board, lambda _, env: LearnerEnd(self.pipe, board, self._server(env))
        )

    def _server(self, env: VectorEnv) -> InferenceServer | None:
        requests, layout = self.pipe.requests, self.pipe.layout.steps
        if requests is None:
            return None
        agent = build_agent(
            self.spec.agent.model_copy(update={"memory": None}),
            env.observation_space,
            env.action_space,
            layout.num_envs * self.spec.meta.max_session,
            AgentSeeds(self.seeds.init, self.seeds.action, self.seeds.sampling),
        )
        return InferenceServer(requests, layout, agent, self.pipe.weights)


@final
@dataclass(frozen=True)
class Serially:
    """Actors and learner in one process, in turn."""

    spec: Spec
    root_seed: int
    trial: int
    first: int
    """The Session whose seeds the first actor has."""

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        seeds = self.root_seed, self.trial, self.first
        return Learning(self.spec, board, lambda *_: InTurn(self.spec, *seeds))


@final
@dataclass(frozen=True)
class OnCluster:
    """Actors on the nodes of a Ray cluster."""

    task: SessionTask
    """The learner's, with the spec of the actors."""
    losses: Connection
    """Tells the Trial's parent which actor is lost for good, and why."""

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        with importing():
            from slm_lab.experiment.cluster_inlet import ClusterInlet

        spec = as_learned(self.task.spec)
        return Learning(
            spec, board, lambda agent, env: ClusterInlet(self.task, board, agent, env, self.losses)
        )
