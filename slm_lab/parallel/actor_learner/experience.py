"""Moves unrolls of actors into a learner's memory."""

from abc import abstractmethod
from collections import Counter
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.memory.replay import Replay
from slm_lab.core.errors import LabError
from slm_lab.core.moments import merged, require_finite
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, StateDict
from slm_lab.env.vector_env import FinishedEpisodes, VectorEnv
from slm_lab.parallel.actor_learner.source import PipelineStats, UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollMemory
from slm_lab.session.experience import Clock, Experience
from slm_lab.session.pace import PUBLISH, RECEIVE, Pace
from slm_lab.session.play_episodes import join_episodes
from slm_lab.spec.schema.spec import Spec

LOOK_SECONDS = 0.1
"""How long a learner waits for an unroll before it checks whether the run is over."""


class ActorExperience(SavedFields, Experience):
    """Receives unrolls for the learner's memory, publishes its weights. `spec` is the
    actors'."""

    saved: ClassVar = {
        "actors": "source",
        "published_version": "_published_version",
        "stats": "_virtual_stats",
    }
    optional: ClassVar = ("stats",)

    def __init__(
        self,
        source: UnrollSource,
        agent: LearningAgent,
        env: VectorEnv,
        clock: Clock,
        spec: Spec,
        pace: Pace,
    ) -> None:
        self.source = source
        self._pace = pace
        self._agent = agent
        self._env = env
        self._clock = clock
        self._flow = spec.meta.actor_learner
        uses_once = isinstance(agent.memory, UnrollMemory)
        per_iteration = 1
        if uses_once:
            per_iteration = self._flow.learn_queue
        num_slices = per_iteration * spec.env.num_envs * env.num_agents
        self.stats = PipelineStats(num_slices, pace)
        self._virtual_stats = self.stats if pace.is_virtual else None
        """The measurements that a resume repeats."""
        self._published_version = -1
        self._held: list[int] = []  # actors whose unrolls are in use
        self._explore_var: float | None = None

    @abstractmethod
    def learned(self) -> None:
        """Called after a training event."""

    @override
    def begin(self) -> None:
        self.source.begin()

    @property
    @override
    def explore_var(self) -> float | None:
        return self._explore_var

    @property
    @override
    def has_ended(self) -> bool:
        return self.source.is_exhausted

    @property
    @override
    def has_failed(self) -> bool:
        return self.source.has_failed

    def publish(self) -> None:
        """Publishes the learner's weights and statistics to the actors."""
        self.source.catch_up()
        self._pace.begin()
        learner = self._agent.learner
        self.source.weights.publish(
            learner.flats, self._env.statistics, learner.version
        )
        self._published_version = learner.version
        self._pace.passed(PUBLISH)

    def _receive(self, seconds: float = LOOK_SECONDS) -> tuple[int, Unroll] | None:
        began = self._pace.now_seconds
        received = self.source.receive(seconds)
        self.stats.waited += self._pace.now_seconds - began
        if received is None:
            return None
        actor, unroll = received
        self._held.append(actor)
        self.stats.lags.append(self._agent.learner.version - int(unroll.version[0]))
        total = self._env.statistics
        (before, after) = unroll.statistics
        require_finite(after)
        if len(total):  # the statistics of all actors
            total[:] = merged(total, before, after, self._env.moments)
        self._explore_var = unroll.explore_var
        return received

    def _publish_and_give_back(self) -> None:
        """Publishes new weights, then returns the slots, so that a waiting actor gets
        both."""
        since = self._agent.learner.version - self._published_version
        if since >= self._flow.publish_frequency:
            self.publish()
        self._give_back()

    def _give_back(self) -> None:
        for actor in self._held:
            self.source.give_back(actor)
        self._held.clear()

    @override
    def state_dict(self) -> StateDict:
        statistics = self._env.statistics.copy()
        return {"env": {"statistics": statistics}, **super().state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._env.statistics[:] = state["env"]["statistics"]
        super().load_state_dict(state)

    @override
    def close(self) -> None:
        self.source.close()


@final
class OnPolicyExperience(ActorExperience):
    """The experience of on-policy algorithms, which use each unroll once."""

    @override
    def step(self) -> FinishedEpisodes | None:
        """Adds a whole unroll to the memory; nothing if none has arrived."""
        memory = self._agent.memory
        assert isinstance(memory, UnrollMemory)
        # An actor without a free slot, a fast one or one of the last, would wait for
        # the learner.
        if self.source.num_slots in Counter(self._held).values():
            memory.detach()
            self._give_back()
        received = self._receive()
        if received is None:
            return None
        self._pace.begin()
        actor, unroll = received
        memory.put(unroll)
        self._clock.tick(unroll.num_frames)
        self._pace.passed(RECEIVE)
        return _finished(unroll, actor, slice(None))

    @override
    def learned(self) -> None:
        self.stats.end_iteration()
        self._publish_and_give_back()


@final
class ReplayExperience(ActorExperience):
    """The experience of replay algorithms: adds an unroll to the memory step by step.
    So the learner trains as often as if it acted itself. Unrolls of several actors
    alternate in one ring, which knows where each continues; unrolls of a single actor
    are continuous."""

    saved: ClassVar = {
        **ActorExperience.saved,
        "actor": "_actor",
        "t": "_t",
        "last_obs": "_last_obs",
    }

    def __init__(
        self,
        source: UnrollSource,
        agent: LearningAgent,
        env: VectorEnv,
        clock: Clock,
        spec: Spec,
        pace: Pace,
    ) -> None:
        super().__init__(
            source=source, agent=agent, env=env, clock=clock, spec=spec, pace=pace
        )
        if not isinstance(agent.memory, Replay):
            raise LabError(
                f"agent.memory.name = {type(agent.memory).__name__}: actors cannot "
                "fill it; use Replay or PrioritizedReplay"
            )
        self._memory = agent.memory
        self._is_free = self._flow.train_ratio is None
        if self._is_free:
            self._memory.train_freely()
        if source.num_actors > 1:
            self._memory.ring.join_pieces()
        self._unroll: Unroll | None = None
        self._actor = 0
        self._t = 0
        self._last_obs: Array | None = None
        """(K, *obs_shape) newest next observations in the memory, between two
        unrolls."""

    @override
    def step(self) -> FinishedEpisodes | None:
        """Adds one step of an actor's environments, or all waiting unrolls if the
        learner trains freely. Does nothing if no unroll has arrived."""
        unroll = self._current()
        if unroll is None:
            return None
        if self._is_free:
            return self._add_waiting(unroll)
        self._add(unroll)
        return _finished(unroll, self._actor, slice(self._t - 1, self._t))

    def _add_waiting(self, unroll: Unroll | None) -> FinishedEpisodes | None:
        """Adds waiting unrolls, at most one per actor, before the learner trains
        again."""
        episodes: list[FinishedEpisodes] = []
        for _ in range(self.source.num_actors):
            if unroll is None:
                break
            first = self._t
            while self._t < unroll.num_steps:
                self._add(unroll)
            finished = _finished(unroll, self._actor, slice(first, None))
            episodes += [] if finished is None else [finished]
            unroll = self._current()
        if episodes:
            return join_episodes(episodes)
        return None

    def _current(self) -> Unroll | None:
        unroll = self._unroll
        if unroll is not None and self._t < unroll.num_steps:
            return unroll
        if unroll is not None:
            self._unroll = None
            # before the first step actors only fill the memory
            if self._agent.learner.opt_step:
                self.stats.end_iteration()
            self._publish_and_give_back()
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
        if self._t == 0 and not unroll.begins:
            self._memory.ring.begin_piece(self._actor)
        self._pace.begin()
        step = unroll.step(self._t)
        self._memory.add(step)
        self._pace.passed(RECEIVE)
        self._t += 1
        self._clock.tick(step.num_present)
        if self._t == unroll.num_steps:
            self._last_obs = unroll.obs[-1].copy()
            if self.source.num_actors > 1:
                self._memory.ring.end_piece(self._actor, self._last_obs)

    @property
    @override
    def has_ended(self) -> bool:
        unroll = self._unroll
        return super().has_ended and (unroll is None or self._t == unroll.num_steps)

    @override
    def learned(self) -> None:
        """Publishes weights while no unroll arrives, because one unroll may allow many
        training events."""
        if self._is_free and self._unroll is None:
            self._publish_and_give_back()

    @override
    def state_dict(self) -> StateDict:
        """Includes the rest of the unroll that is being added."""
        return {
            **super().state_dict(),
            "unroll": None if self._unroll is None else self._unroll.saved(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        saved = state["unroll"]
        self._unroll = None if saved is None else Unroll.restored(saved)


def _finished(unroll: Unroll, actor: int, steps: slice) -> FinishedEpisodes | None:
    """The episodes that ended in `steps`, in order; environments are numbered over all
    actors."""
    lengths = unroll.episode_length[steps]
    t, index = np.nonzero(lengths)
    if not len(t):
        return None
    first = actor * lengths.shape[1]
    returns = unroll.episode_return[steps][t, index]
    info = unroll.info[steps][t, index]
    return FinishedEpisodes(index + first, returns, lengths[t, index], info)
