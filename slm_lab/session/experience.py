"""Sources of a Session's training steps; by default the Session acts itself."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.batch import Act, VectorStep
from slm_lab.core.state import HasState
from slm_lab.core.types import Array, IntArray, StateDict
from slm_lab.env.vector_env import FinishedEpisodes, Step, VectorEnv
from slm_lab.session.pace import ACTING, ENVIRONMENT, MEMORY, Pace


class Clock:
    """Counts environment steps, summed over environments. `slots` holds one int64 per
    Session that shares the budget. Only that Session writes it. A shared counter would
    lose increments, and a lock would stay held if its holder died. The total is the sum
    of the slots; `max_frame` bounds it."""

    def __init__(self, slots: IntArray, index: int, max_frame: int) -> None:
        if slots.dtype != np.int64:
            raise TypeError(f"clock slots are int64, not {slots.dtype}")
        self._slots = slots
        self._index = index
        self._alone = len(slots) == 1
        self._max_frame = max_frame
        self.frame = int(slots[index])

    @property
    def total_frame(self) -> int:
        """Frames of all Sessions together."""
        if self._alone:
            return self.frame
        return sum(self._slots.tolist())

    @property
    def frames(self) -> list[int]:
        """Frames of every Session, including this one."""
        return [int(frame) for frame in self._slots]

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent, so that no further step may begin."""
        return self.total_frame >= self._max_frame

    def tick(self, frames: int) -> None:
        """Adds `frames` to this Session's count."""
        self.set(self.frame + frames)

    def load(self, frame: int, frames: Sequence[int]) -> None:
        """Restores the saved `frame` and `frames`. The count never decreases: other
        Sessions read it, and another process may be ahead."""
        self.set(max(self.frame, frame))

    def set(self, frame: int) -> None:
        """Sets this Session's count, as a resumed Session does."""
        self.frame = frame
        self._slots[self._index] = frame


logger = logging.getLogger(__name__)


class Experience(HasState):
    """A source of environment steps for an agent's memory."""

    @abstractmethod
    def begin(self) -> None:
        """Starts the first episodes of a fresh Session."""

    @abstractmethod
    def step(self) -> FinishedEpisodes | None:
        """Adds the next steps to the memory and the clock; returns the episodes they
        ended."""

    @property
    @abstractmethod
    def explore_var(self) -> float | None:
        """The exploration variable of the latest act."""

    @property
    def has_ended(self) -> bool:
        """Whether no more steps will come although frames are left."""
        return False

    @property
    def has_failed(self) -> bool:
        """Whether an environment of this process has raised an exception."""
        return False

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds so far of acting, environment and memory; zero where others act."""
        return 0.0, 0.0, 0.0

    def resume(self, state: StateDict) -> None:
        """Truncates episodes that cannot be continued; called when all else is
        restored. By default nothing happens: others act, in fresh episodes."""

    def close(self) -> None:
        """Frees what it holds besides the environments."""


def observed(obs: Array, act: Act, step: Step) -> VectorStep:
    """An environment's step as the agent observes it, with the `obs` that it acted
    on."""
    return VectorStep(
        obs=obs,
        act=act,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        next_obs=step.next_obs,
        raw=step.raw,
        absent=step.absent,
    )


@final
class Acting(Experience):
    """An agent in its own environments: act, step, observe."""

    def __init__(
        self,
        agent: LearningAgent,
        env: VectorEnv,
        clock: Clock,
        env_name: str,
        pace: Pace | None = None,
    ) -> None:
        self._agent = agent
        self._env = env
        self._clock = clock
        self._env_name = env_name
        self._pace = pace or Pace()
        self._continues = True
        """Whether the episodes of a loaded state go on."""

    @override
    def begin(self) -> None:
        self._env.reset()

    @override
    def step(self) -> FinishedEpisodes | None:
        agent = self._agent
        env = self._env
        pace = self._pace
        pace.begin()
        obs = env.obs
        frame = self._clock.total_frame
        act = agent.act(obs, frame)
        pace.passed(ACTING)
        env.set_frame(frame)
        result = env.step(act.action)
        pace.passed(ENVIRONMENT)
        self._clock.tick(result.num_frames)
        agent.observe(observed(obs, act, result))
        pace.passed(MEMORY)
        return result.finished

    @property
    @override
    def seconds(self) -> tuple[float, float, float]:
        seconds = self._pace.seconds
        acting, environment, memory = (
            seconds.get(kind, 0.0) for kind in (ACTING, ENVIRONMENT, MEMORY)
        )
        return acting, environment, memory

    @property
    @override
    def has_failed(self) -> bool:
        return self._env.has_failed

    @property
    @override
    def explore_var(self) -> float | None:
        return self._agent.actor.explore_var

    @override
    def state_dict(self) -> StateDict:
        return {"env": self._env.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._continues = self._env.load_state_dict(state["env"])

    @override
    def resume(self, state: StateDict) -> None:
        if not self._continues:
            self._agent.break_off(state["env"]["obs"], state["env"]["raw_obs"])
            logger.warning(
                "the state of %s %s: resuming with fresh episodes and fresh global "
                "generators",
                self._env_name,
                "was not saved" if self._env.exact_state else "cannot be saved",
            )
