"""Actors: they play unrolls with the newest weights of a learner, and learn nothing themselves."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import final

import numpy as np

from slm_lab.agent.algorithm.algorithm import Actor, AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.unroll import Unroll, UnrollWriter
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.types import StateDict
from slm_lab.env.make import make_env
from slm_lab.experiment.acting import Acting
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.inference import TrainingOver
from slm_lab.experiment.pipe import ActorEnd, Pipe
from slm_lab.experiment.placement import on_cpu
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.seeding import SessionSeeds
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import unroll_length

logger = logging.getLogger(__name__)


@final
class Player:
    """The acting half of an agent in environments of its own, one unroll at a time.

    Where `acting_half` is given its own network has nothing to do.
    """

    def __init__(self, spec: Spec, seeds: SessionSeeds, acting_half: Actor | None = None) -> None:
        gamma = spec.agent.algorithm.gamma or 1.0
        self._steps = unroll_length(spec)
        self.env = make_env(spec.env, seeds.env, gamma=gamma)
        try:
            self.agent = build_agent(
                on_cpu(spec.agent),
                self.env.observation_space,
                self.env.action_space,
                spec.env.num_envs,
                AgentSeeds(seeds.init, seeds.action, seeds.sampling),
                frame_stack=self.env.frame_stack,
                make_memory=self._writer_for,
            )
        except BaseException:
            self.env.close()
            raise
        self._networks: Mapping[str, FlatParameters] = self.agent.learner.flats
        if acting_half is not None:
            self.agent.actor, self._networks = acting_half, {}
        self._env_name = spec.env.name
        self._before = self.env.statistics.copy()
        """The statistics from which the next unroll goes on."""
        self._taken = 0
        self._begins = True

    def _writer_for(self, layout: MemoryLayout) -> UnrollWriter:
        self.writer = UnrollWriter(replace(layout, horizon=self._steps))
        return self.writer

    def begin(self, clock: Clock, weights: Publication) -> None:
        """Acts on this clock, and with these weights, from the next unroll on."""
        self.clock = clock
        self._acting = Acting(self.agent, self.env, clock, self._env_name)
        self._weights = weights

    def reset(self) -> None:
        """Fresh episodes: what comes does not follow what was before."""
        self._take_newest()
        self.env.reset()
        self._begins = True

    def play(self, unroll: Unroll, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Fills an unroll; False where it is over before that."""
        self._take_newest()
        agent, env, writer = self.agent, self.env, self.writer
        writer.begin(unroll, self._before, self._begins)
        while not writer.ready():
            if is_over():
                return False
            finished = self._acting.step()
            if finished is not None:
                writer.note(*finished)
        writer.end(env.statistics, agent.actor.explore_var, time.perf_counter())
        self._before = env.statistics.copy()
        self._begins = False
        return True

    def _take_newest(self) -> None:
        """The weights, and the statistics of all environments, where there are newer ones."""
        count = self._weights.count
        if count != self._taken:
            self.agent.actor.version = self._weights.take(self._networks, self.env.statistics)
            self._before = self.env.statistics.copy()
            self._taken = count

    def close(self) -> None:
        """Frees the environments."""
        self.env.close()

    def state_dict(self) -> StateDict:
        """Between two unrolls."""
        return {
            "frame": self.clock.frame,
            "env": self.env.state_dict(),
            "actor": self.agent.actor.state_dict(),
            "flats": {name: f.state_dict() for name, f in self.agent.learner.flats.items()},
            "before": self._before,
            "taken": self._taken,
            "begins": self._begins,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Goes on from there, in fresh episodes where those cannot be gone on with."""
        self.clock.set(int(state["frame"]))
        self.env.load_state_dict(state["env"])
        self.agent.actor.load_state_dict(state["actor"])
        for name, flat in self.agent.learner.flats.items():
            flat.load_state_dict(state["flats"][name])
        self._before = np.asarray(state["before"])
        self._taken = int(state["taken"])
        self._begins = bool(state["begins"])
        if not self.env.exact_state:
            self._begins = True
            self.agent.actor.end_episodes(np.ones(self.env.num_envs, np.bool_))


@final
class ActorSession:
    """The process of one actor: it plays until the budget is spent or the learner has ended.

    It writes no rows and saves nothing: one that dies is replaced, and loses its running episodes.
    """

    def __init__(
        self, spec: Spec, index: int, seeds: SessionSeeds, board: Board, actor: int, pipe: Pipe
    ) -> None:
        self._index = index
        self._board = board
        self._session = 1 + actor
        self._end = ActorEnd(pipe, board, actor)
        self._player = Player(spec, seeds, self._end.acting_half())
        clock = Clock(board.clock_slots[1:], actor, spec.env.max_frame)
        self._player.begin(clock, pipe.weights)

    def run(self) -> SessionResult:
        """Unroll after unroll."""
        end, player = self._end, self._player
        self._board.write(self._session, phase=Phase.READY)
        if end.wait_for_weights():
            self._board.write(self._session, phase=Phase.RUNNING)
            logger.info("acting from frame %d on", player.clock.frame)
            player.reset()
            self._play()
        frame = player.clock.frame
        stopped = self._board.stop_requested
        ending = Ending.INTERRUPTED if stopped else Ending.FINISHED
        logger.info("%s at frame %d", ending, frame)
        return SessionResult(self._index, ending, frame)

    def _play(self) -> None:
        end, player = self._end, self._player
        while not end.is_over:
            unroll = end.next_slot()
            if unroll is None:
                return
            began = time.perf_counter()
            try:
                if not player.play(unroll, lambda: end.is_over):
                    return
            except TrainingOver:
                return
            end.hand_over(time.perf_counter() - began)

    def close(self) -> None:
        """Frees the environments."""
        self._player.close()
