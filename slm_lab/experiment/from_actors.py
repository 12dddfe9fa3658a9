"""What actors have played, for the memory of a learner."""

from abc import abstractmethod
from dataclasses import fields
from typing import final

import numpy as np

from slm_lab.agent.agent import Agent
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.unroll import Unroll, UnrollMemory
from slm_lab.core.errors import LabError, NonFiniteLossError
from slm_lab.core.moments import merged
from slm_lab.core.types import Array, StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.acting import Experience
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.inlet import Inlet
from slm_lab.experiment.traffic import Traffic

LOOK_SECONDS = 0.1
"""How long a learner waits for an unroll before it looks whether the run is over."""


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
        if self._keeps_one_waiting():
            memory.detach()
            self._give_back()
        received = self._receive()
        if received is None:
            return None
        actor, unroll = received
        memory.put(unroll)
        self._clock.tick(unroll.reward.size)
        return _finished(unroll, actor, slice(None))

    def _keeps_one_waiting(self) -> bool:
        """Whether all slots of an actor are held, and more is wanted: of a few that are left, or
        that are faster than others."""
        full = self.inlet.num_slots
        return any(self._held.count(actor) == full for actor in set(self._held))

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
