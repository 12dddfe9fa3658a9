"""Actors, which play unrolls with the learner's newest weights and do not learn."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.parallel.actor_learner.inference import TrainingOver
from slm_lab.parallel.actor_learner.queue import ActorQueue, UnrollQueue
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollLayout, UnrollWriter
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.virtual.costs import keep_costs
from slm_lab.parallel.virtual.simulation import real_pace
from slm_lab.session.build import env_and_agent, place_on_cpu
from slm_lab.session.experience import Acting, Clock
from slm_lab.session.pace import Pace
from slm_lab.session.seeding import SessionSeeds, session_seeds
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending, SessionResult

logger = logging.getLogger(__name__)


@final
class UnrollActor(SavedFields):
    """An agent that acts in its own environments, one unroll at a time. It takes its
    weights from `weights`, by default a store that is still empty. If `acting_half` is
    given, it acts instead of the agent's own network."""

    saved: ClassVar = {
        "actor": "agent.actor",
        "flats": "agent.learner.flats",
        "before": "_before",
        "taken": "_taken",
        "begins": "_begins",
    }

    def __init__(
        self,
        spec: Spec,
        seeds: SessionSeeds,
        clock: Clock,
        weights: WeightStore | None = None,
        acting_half: Actor | None = None,
        marks: CopyMarks | None = None,
        pace: Pace | None = None,
    ) -> None:
        make_memory = partial(UnrollWriter, horizon=spec.unroll_length)
        self.env, self.agent = env_and_agent(
            place_on_cpu(spec), seeds, make_memory=make_memory, marks=marks
        )
        assert isinstance(self.agent.memory, UnrollWriter)
        self.writer = self.agent.memory
        self.layout = UnrollLayout(
            self.writer.layout, len(self.env.statistics), self.env.num_info
        )
        self.clock = clock
        self._acting = Acting(
            agent=self.agent,
            env=self.env,
            clock=clock,
            env_name=spec.env.name,
            pace=pace,
        )
        self._networks: Mapping[str, FlatParameters] = self.agent.learner.flats
        self.weights = weights or WeightStore.of(
            self._networks, self.layout.num_statistics
        )
        if acting_half is not None:
            self.agent.actor = acting_half
            self._networks = {}
        self._before = self.env.statistics.copy()
        """The statistics at the start of the next unroll."""
        self._taken = 0
        self._begins = True

    def reset(self) -> None:
        """Starts fresh episodes; the next unroll does not continue the previous one."""
        self._take_newest()
        self.env.set_frame(self.clock.total_frame)
        self.env.reset()
        self._begins = True

    def play(self, unroll: Unroll, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Fills an unroll; False if `is_over` becomes true first."""
        self._take_newest()
        agent = self.agent
        env = self.env
        writer = self.writer
        writer.begin(unroll, self._before, self._begins)
        while not writer.ready():
            if is_over():
                return False
            finished = self._acting.step()
            if finished is not None:
                writer.note(finished)
        writer.end(env.statistics, agent.actor.explore_var, time.perf_counter())
        self._before = env.statistics.copy()
        self._begins = False
        return True

    def _take_newest(self) -> None:
        count = self.weights.count
        if count != self._taken:
            self.agent.actor.version = self.weights.take(
                self._networks, self.env.statistics
            )
            self._before = self.env.statistics.copy()
            self._taken = count

    def close(self) -> None:
        """Frees the environments."""
        self.env.close()

    @override
    def state_dict(self) -> StateDict:
        """The state between two unrolls."""
        return {
            "frame": self.clock.frame,
            "env": self.env.state_dict(),
            **super().state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores the state; starts fresh episodes if the saved ones cannot be
        continued."""
        self.clock.set(int(state["frame"]))
        continues = self.env.load_state_dict(state["env"])
        super().load_state_dict(state)
        if not continues:
            self._begins = True
            self.agent.actor.end_episodes(np.ones(self.env.num_envs, np.bool_))


def run_actor(
    queue: UnrollQueue, task: SessionTask, status_board: StatusBoard
) -> SessionResult:
    """The program of an actor: it plays until the budget is spent or the learner has
    ended. It writes no rows and saves nothing: an actor that dies is replaced and loses
    its episodes. The first actor uses the seeds that the learner's Session would use. A
    replacement, or an actor of a resumed run, plays other episodes."""
    session = task.workers.index(task.session)
    actor = session - 1
    if task.replaces is not None:
        logger.warning("actor %d is replaced: %s", actor, task.replaces)
    own_status_board = status_board.part(task.workers)
    slots = own_status_board.clock_slots
    frame = int(slots[0] + slots[session])
    seeds = session_seeds(task.root_seed, task.trial, task.session - 1, frame)
    end = ActorQueue(queue, own_status_board, actor)
    clock = Clock(slots[1:], actor, task.spec.env.max_frame)
    marks = own_status_board.marks_of(session)
    pace = real_pace(task.spec.meta)
    unroll_actor = UnrollActor(
        spec=task.spec,
        seeds=seeds,
        clock=clock,
        weights=queue.weights,
        acting_half=end.acting_half,
        marks=marks,
        pace=pace,
    )
    with closing(unroll_actor):
        own_status_board.write(session, phase=Phase.READY)
        if end.wait_for_weights():
            own_status_board.write(session, phase=Phase.RUNNING)
            logger.info("acting from frame %d", clock.frame)
            unroll_actor.reset()
            with suppress(TrainingOver):
                _play(unroll_actor, end)
        keep_costs(task.paths, pace)
        ending = Ending.FINISHED
        if status_board.stop_requested:
            ending = Ending.INTERRUPTED
        logger.info("%s at frame %d", ending, clock.frame)
        return SessionResult(task.session, ending, clock.frame)


def _play(actor: UnrollActor, end: ActorQueue) -> None:
    while not end.is_over and (unroll := end.next_slot()) is not None:
        began = time.perf_counter()
        if not actor.play(unroll, lambda: end.is_over):
            return
        end.hand_over(time.perf_counter() - began)
