"""An agent: two halves joined by a memory."""

from typing import Any

import numpy as np

from slm_lab.agent.algorithm.algorithm import Actor, Learner
from slm_lab.agent.batch import Act
from slm_lab.agent.describe import described
from slm_lab.agent.memory.memory import AppendLog, Memory
from slm_lab.core.normalization import Unnormalized
from slm_lab.core.types import Array, BoolArray, FloatArray, StateDict


class Agent:
    """Acts, remembers, and learns when its memory has something to learn from."""

    def __init__(self, actor: Actor, learner: Learner[Any], memory: Memory[Any] | None) -> None:
        self.actor = actor
        self.learner = learner
        self.memory = memory

    def act(self, obs: Array, frame: int) -> Act:
        """Actions for observations (N, *obs_shape) at the trial's clock, and what was believed."""
        return self.actor.act(obs, frame)

    def observe(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
        raw: Unnormalized | None = None,
    ) -> None:
        """Remembers one vector step; `next_obs` is what each step really ended in, and `raw` what
        was normalised of all this."""
        if act.state_around is not None:
            obs, next_obs = act.state_around.packed_obs(obs, next_obs)
            if raw is not None:
                raw_obs, raw_next = act.state_around.packed_obs(raw.obs, raw.next_obs)
                raw = Unnormalized(raw_obs, raw.reward, raw_next)
            self.actor.end_episodes(terminated | truncated)
        if self.memory is not None:
            self.memory.add(obs, act, reward, terminated, truncated, next_obs, raw)

    @property
    def is_due(self) -> bool:
        """Whether it is time to train."""
        return self.memory is not None and self.memory.ready()

    @property
    def num_samples(self) -> int:
        """See `Memory.num_samples`."""
        return 1 if self.memory is None else self.memory.num_samples

    def learn(self, frame: int) -> dict[str, float] | None:
        """Trains if it is time; returns the report of the training event, or None.

        Raises NonFiniteLossError with the statistics of the batch that caused it.
        """
        if self.memory is None or not self.memory.ready():
            return None
        batch = self.memory.take()
        with described(batch):
            report = self.learner.learn(batch, frame)
        self.actor.version = self.learner.version
        return report

    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Ends the running episodes as truncated: the environments begin afresh.

        They ended in `next_obs` (N, …), which was `raw_next_obs` before it was normalised.
        """
        if self.memory is not None:
            raw = next_obs if raw_next_obs is None else raw_next_obs
            self.memory.break_off(self.actor.seen(next_obs), self.actor.seen(raw))
        self.actor.end_episodes(np.ones(len(next_obs), np.bool_))

    @property
    def log(self) -> AppendLog | None:
        """The steps of its memory, where they are so many that they are saved piece by piece."""
        return None if self.memory is None else self.memory.log

    def state_dict(self) -> StateDict:
        """Everything that acting and learning depend on."""
        memory = None if self.memory is None else self.memory.state_dict()
        return {**self._halves(), "memory": memory}

    def state_without_log(self) -> StateDict:
        """The same, less the steps that `log` has."""
        memory = None if self.memory is None else self.memory.state_without_log()
        return {**self._halves(), "memory": memory}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it in place; what is not in `state` is for `log` to load afterwards."""
        self.actor.load_state_dict(state["actor"])
        self.learner.load_state_dict(state["learner"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])

    def _halves(self) -> StateDict:
        return {"actor": self.actor.state_dict(), "learner": self.learner.state_dict()}
