"""Where the steps come from that a Session learns from: by default from acting itself."""

import logging
from abc import ABC, abstractmethod
from typing import final

from slm_lab.agent.agent import Agent
from slm_lab.core.types import StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.clock import Clock

logger = logging.getLogger(__name__)


class Experience(ABC):
    """Steps in environments, for an agent's memory."""

    @abstractmethod
    def begin(self) -> None:
        """A fresh Session: first episodes begin."""

    @abstractmethod
    def step(self) -> FinishedEpisodes | None:
        """Has the memory given what comes next, and the clock told; the episodes that it ended."""

    @property
    @abstractmethod
    def explore_var(self) -> float | None:
        """The exploration variable of the newest act."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes any more, though frames are left."""
        return False

    @abstractmethod
    def state_dict(self) -> StateDict:
        """What the next step depends on besides the agent; the environments' as "env"."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores it."""

    @abstractmethod
    def go_on(self, state: StateDict) -> None:
        """Once all else is restored: episodes that cannot be gone on with are broken off."""

    @abstractmethod
    def close(self) -> None:
        """Frees what it has."""


@final
class Acting(Experience):
    """An agent in its own environments: it acts, steps, and remembers what came of it."""

    def __init__(self, agent: Agent, env: VectorEnv, clock: Clock, env_name: str) -> None:
        self._agent = agent
        self._env = env
        self._clock = clock
        self._env_name = env_name

    def begin(self) -> None:
        """See `Experience`."""
        self._env.reset()

    def step(self) -> FinishedEpisodes | None:
        """One step of every environment."""
        agent, env = self._agent, self._env
        obs = env.obs
        act = agent.act(obs, self._clock.total_frame)
        step = env.step(act.action)
        self._clock.tick(env.num_envs)
        agent.observe(
            obs, act, step.reward, step.terminated, step.truncated, step.next_obs, step.raw
        )
        return step.finished

    @property
    def explore_var(self) -> float | None:
        """See `Experience`."""
        return self._agent.actor.explore_var

    def state_dict(self) -> StateDict:
        """Of the environments, with what was seen last."""
        obs, raw = self._env.obs, self._env.raw_obs
        return {
            "env": self._env.state_dict(),
            "obs": obs.copy(),
            "raw_obs": None if raw is obs else raw.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Experience`."""
        self._env.load_state_dict(state["env"])

    def go_on(self, state: StateDict) -> None:
        """See `Experience`."""
        if not self._env.exact_state:
            self._agent.break_off(state["obs"], state["raw_obs"])
            logger.warning(
                "the state of %s cannot be saved: going on with fresh episodes", self._env_name
            )

    def close(self) -> None:
        """The environments."""
        self._env.close()
