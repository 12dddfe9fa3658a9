"""Actor–learner training: a Session that learns from what actors play, and never acts itself."""

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import Any, Protocol, final

import numpy as np

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.build import build_agent
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.unroll import Unroll, UnrollLayout, UnrollMemory
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.errors import LabError, NonFiniteLossError
from slm_lab.core.imports import importing
from slm_lab.core.moments import merged
from slm_lab.core.types import Array, StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.acting import Experience
from slm_lab.experiment.actor import Player
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.inference import InferenceServer
from slm_lab.experiment.pipe import LearnerEnd, Pipe, slots_per_actor
from slm_lab.experiment.progress import END, TO_BEGIN, Board
from slm_lab.experiment.seeding import SessionSeeds, session_seeds
from slm_lab.experiment.traffic import Traffic
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import as_learned

START_SECONDS = 60.0
"""How long the learner waits at most for its actors to start."""
LOOK_SECONDS = 0.1
"""How long it waits for an unroll before it looks whether the run is over."""


class Inlet(Protocol):
    """Where unrolls come from, as the learner sees it."""

    weights: Publication
    num_actors: int

    def look(self) -> None:
        """Does what actors need while nothing is asked of them."""

    def begin(self) -> None:
        """First episodes begin."""

    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """See `LearnerEnd.receive`."""

    def give_back(self, actor: int) -> None:
        """See `LearnerEnd.give_back`."""

    @property
    def nothing_comes(self) -> bool:
        """Whether there will be no more."""

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that all actors together have waited for slots, and acted."""

    @property
    def cpu_t(self) -> float:
        """CPU seconds of the actors' processes."""

    def end(self) -> None:
        """No unroll is wanted any more."""

    def stand_aside(self, aside: bool) -> None:
        """Whether the learner does something else."""

    def state_dict(self) -> StateDict:
        """What comes next depends on it."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it."""

    def close(self) -> None:
        """Frees environments."""


@final
class InTurn(Inlet):
    """Actors in the learner's own process: each plays when an unroll is asked for, in turn."""

    def __init__(self, spec: Spec, root_seed: int, trial: int, first: int) -> None:
        count = spec.meta.max_session
        self.num_actors = count
        seeds = [session_seeds(root_seed, trial, first + actor) for actor in range(count)]
        self._players: list[Player] = []
        try:
            for each in seeds:
                self._players.append(Player(spec, each))
        except BaseException:
            self.close()
            raise
        one = self._players[0]
        layout = UnrollLayout(one.writer.layout, len(one.env.statistics))
        self.weights = Publication.of(one.agent.learner.flats, layout.num_statistics)
        slots = np.zeros(count, np.int64)
        for actor, player in enumerate(self._players):
            player.begin(Clock(slots, actor, spec.env.max_frame), self.weights)
        ring = slots_per_actor(spec.meta)
        self._unrolls = [[Unroll.allocate(layout) for _ in range(ring)] for _ in seeds]
        self._turn = 0
        self._acted = 0.0

    def look(self) -> None:
        """See `Inlet`."""

    def begin(self) -> None:
        """See `Inlet`."""
        for player in self._players:
            player.reset()

    def receive(self, seconds: float) -> tuple[int, Unroll]:
        """The next actor plays."""
        turn, actor = divmod(self._turn, self.num_actors)
        ring = self._unrolls[actor]
        unroll = ring[turn % len(ring)]
        began = time.perf_counter()
        self._players[actor].play(unroll)
        self._acted += time.perf_counter() - began
        self._turn += 1
        return actor, unroll

    def give_back(self, actor: int) -> None:
        """See `Inlet`."""

    @property
    def nothing_comes(self) -> bool:
        """Never."""
        return False

    @property
    def waited(self) -> tuple[float, float]:
        """Nobody waits: who has no turn does not count."""
        return 0.0, self._acted

    @property
    def cpu_t(self) -> float:
        """None of their own."""
        return 0.0

    def end(self) -> None:
        """See `Inlet`."""

    def stand_aside(self, aside: bool) -> None:
        """See `Inlet`."""

    def state_dict(self) -> StateDict:
        """The actors, and what was published last."""
        return {
            "turn": self._turn,
            "players": [player.state_dict() for player in self._players],
            "weights": self.weights.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Inlet`."""
        self._turn = int(state["turn"])
        self.weights.load_state_dict(state["weights"])
        for player, saved in zip(self._players, state["players"], strict=True):
            player.load_state_dict(saved)

    def close(self) -> None:
        """See `Inlet`."""
        for player in self._players:
            player.close()


class FromActors(Experience):
    """What actors have played, for the memory of the learner."""

    def __init__(
        self,
        inlet: Inlet,
        traffic: Traffic,
        agent: Agent,
        env: VectorEnv,
        clock: Clock,
        publish_frequency: int,
    ) -> None:
        self.inlet = inlet
        self.traffic = traffic
        self._agent = agent
        self._env = env
        self._clock = clock
        self._publish_frequency = publish_frequency
        self._published_version = -1
        self._held: list[int] = []
        """Actors whose unrolls are in use."""
        self._explore_var: float | None = None

    @abstractmethod
    def learned(self) -> None:
        """A training event is over."""

    def begin(self) -> None:
        """See `Experience`."""
        self.inlet.begin()

    @property
    def explore_var(self) -> float | None:
        """See `Experience`."""
        return self._explore_var

    @property
    def has_ended(self) -> bool:
        """See `Experience`."""
        return self.inlet.nothing_comes

    def publish(self) -> None:
        """What the learner has becomes what actors act with."""
        learner = self._agent.learner
        self.inlet.weights.publish(learner.flats, self._env.statistics, learner.version)
        self._published_version = learner.version

    def _receive(self, seconds: float = LOOK_SECONDS) -> tuple[int, Unroll] | None:
        with self.traffic.waiting():
            received = self.inlet.receive(seconds)
        if received is None:
            return None
        actor, unroll = received
        self._held.append(actor)
        self.traffic.note_lag(self._agent.learner.version - int(unroll.version[0]))
        self._merge_statistics(unroll)
        self._explore_var = unroll.explore_var
        return received

    def _merge_statistics(self, unroll: Unroll) -> None:
        """Those of the environments become those of all that any actor has seen."""
        total, (before, after) = self._env.statistics, unroll.statistics
        if not np.isfinite(after).all():
            raise NonFiniteLossError(
                "the running statistics of observations or rewards are not finite: the "
                "environment gave a number that is not"
            )
        if len(total):
            total[:] = merged(total, before, after, self._env.moments)

    def _let_go(self) -> None:
        """Publishes what is new, then gives the slots back, so that who waits for one has it."""
        if self._agent.learner.version - self._published_version >= self._publish_frequency:
            self.publish()
        self._give_back()

    def _give_back(self) -> None:
        for actor in self._held:
            self.inlet.give_back(actor)
        self._held.clear()

    def state_dict(self) -> StateDict:
        """See `Experience`."""
        return {
            "env": {"statistics": self._env.statistics.copy()},
            "actors": self.inlet.state_dict(),
            "published_version": self._published_version,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Experience`."""
        self._env.statistics[:] = state["env"]["statistics"]
        self.inlet.load_state_dict(state["actors"])
        self._published_version = int(state["published_version"])

    def go_on(self, state: StateDict) -> None:
        """Actors begin fresh episodes by themselves, and say so with what they play."""

    def close(self) -> None:
        """See `Experience`."""
        self.inlet.close()


@final
class Rollouts(FromActors):
    """For algorithms that learn once from what a policy has done, an unroll at a time."""

    def step(self) -> FinishedEpisodes | None:
        """A whole unroll; nothing where none has come yet."""
        memory = self._agent.memory
        assert isinstance(memory, UnrollMemory)
        received = self._receive()
        if received is None:
            if self._held:  # of few actors that are left it may have all slots, and want more
                memory.detach()
                self._give_back()
            return None
        actor, unroll = received
        memory.put(unroll)
        self._clock.tick(unroll.reward.size)
        return _finished(unroll, actor, slice(None))

    def learned(self) -> None:
        """The unrolls are used up."""
        self.traffic.end_iteration()
        self._let_go()


@final
class Transitions(FromActors):
    """For algorithms that replay: an unroll is taken into the memory step by step, so that they
    train as often as if they had taken the steps themselves.

    The steps of several actors lie one after the other in one ring, so each unroll ends there as if
    cut off; that of a single actor goes on with the next one.
    """

    def __init__(
        self,
        inlet: Inlet,
        traffic: Traffic,
        agent: Agent,
        env: VectorEnv,
        clock: Clock,
        publish_frequency: int,
        is_free: bool,
    ) -> None:
        super().__init__(inlet, traffic, agent, env, clock, publish_frequency)
        if not isinstance(agent.memory, Replay):
            raise LabError(
                f"{type(agent.memory).__name__} cannot be filled by actors of distributed "
                '"actor_learner": it takes the lab\'s Replay or PrioritizedReplay'
            )
        self._memory = agent.memory
        self._is_free = is_free
        if is_free:
            self._memory.train_freely()
        self._unroll: Unroll | None = None
        self._actor = 0
        self._t = 0
        self._last_obs: Array | None = None
        """(K, *obs_shape) what the newest step in the memory ended in, between two unrolls."""

    def step(self) -> FinishedEpisodes | None:
        """One step of an actor's environments; all that waits where the learner trains as fast as
        it can; nothing where none has come yet."""
        unroll = self._current()
        if unroll is None:
            return None
        if self._is_free:
            return self._all_that_wait(unroll)
        self._add(unroll)
        return _finished(unroll, self._actor, slice(self._t - 1, self._t))

    def _all_that_wait(self, unroll: Unroll | None) -> FinishedEpisodes | None:
        """Unrolls until none is there or every actor may have had its turn: to learn comes next."""
        found: list[FinishedEpisodes] = []
        for _ in range(self.inlet.num_actors):
            if unroll is None:
                break
            first = self._t
            while self._t < unroll.num_steps:
                self._add(unroll)
            finished = _finished(unroll, self._actor, slice(first, None))
            found += [] if finished is None else [finished]
            unroll = self._current()
        if not found:
            return None
        return FinishedEpisodes(*map(np.concatenate, zip(*found, strict=True)))

    def _current(self) -> Unroll | None:
        """The unroll that is being taken in, or the next one."""
        unroll = self._unroll
        if unroll is not None and self._t < unroll.num_steps:
            return unroll
        if unroll is not None:
            self._unroll = None
            if self._agent.learner.opt_step:  # before there is only acting
                self.traffic.end_iteration()
            self._let_go()
        can_wait = not (self._is_free and self._memory.ready())
        received = self._receive(LOOK_SECONDS if can_wait else 0.0)
        if received is None:
            return None
        self._actor, self._unroll = received
        self._t = 0
        if self._unroll.begins and self._last_obs is not None:
            self._memory.break_off(self._last_obs)
        return self._unroll

    def _add(self, unroll: Unroll) -> None:
        self._memory.add(*unroll.step(self._t))
        self._t += 1
        self._clock.tick(unroll.reward.shape[1])
        if self._t == unroll.num_steps:
            self._last_obs = unroll.obs[-1].copy()
            if self.inlet.num_actors > 1:
                self._memory.break_off(self._last_obs)

    @property
    def has_ended(self) -> bool:
        """See `Experience`."""
        unroll = self._unroll
        return super().has_ended and (unroll is None or self._t == unroll.num_steps)

    def learned(self) -> None:
        """An unroll may be good for many training events; while none comes what is new is told."""
        if self._is_free and self._unroll is None:
            self._let_go()

    def state_dict(self) -> StateDict:
        """With what is still to be taken in."""
        unroll = self._unroll
        rest = None if unroll is None else {f.name: getattr(unroll, f.name) for f in fields(unroll)}
        return {
            **super().state_dict(),
            "unroll": None if rest is None else {n: array.copy() for n, array in rest.items()},
            "actor": self._actor,
            "t": self._t,
            "last_obs": self._last_obs,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Experience`."""
        super().load_state_dict(state)
        saved, last_obs = state["unroll"], state["last_obs"]
        self._unroll = None if saved is None else Unroll(**saved)
        self._actor, self._t = int(state["actor"]), int(state["t"])
        self._last_obs = None if last_obs is None else np.asarray(last_obs)


def _finished(unroll: Unroll, actor: int, steps: slice) -> FinishedEpisodes | None:
    """The episodes that ended in some steps, in order; environments are numbered through."""
    lengths = unroll.episode_length[steps]
    t, index = np.nonzero(lengths)
    if not len(t):
        return None
    first = actor * lengths.shape[1]
    returns = unroll.episode_return[steps][t, index]
    return FinishedEpisodes(index + first, returns, lengths[t, index])


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

    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
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
        self._board.arrived[0] = END
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
