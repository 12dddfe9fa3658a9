"""An agent: an actor and a learner, joined by a memory."""

from typing import Any, ClassVar

import numpy as np

from slm_lab.agent.algorithm.algorithm import Actor, Learner
from slm_lab.agent.algorithm.report import read
from slm_lab.agent.batch import Act, VectorStep, describe_on_error
from slm_lab.agent.from_spec.schedule import ScheduledNumbers
from slm_lab.agent.memory.memory import AppendLog, Memory
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array


class LearningAgent(SavedFields):
    """Acts, stores steps, and learns when its memory has something to learn from. Its
    `log` is no part of its state."""

    saved: ClassVar = {"actor": "actor", "learner": "learner", "memory": "memory"}

    def __init__(
        self,
        actor: Actor,
        learner: Learner[Any],
        memory: Memory[Any] | None,
        numbers: ScheduledNumbers | None = None,
    ) -> None:
        """`numbers` are the numbers of the algorithm that change over the run. Raises
        LabError if the learner cannot change them."""
        self.actor = actor
        self.learner = learner
        self.memory = memory
        self._numbers = numbers
        if numbers is not None:
            learner.take_numbers(numbers.at(0))

    def act(self, obs: Array, frame: int) -> Act:
        """Actions for observations (N, *obs_shape) at the trial's clock, with log π and
        V."""
        return self.actor.act(obs, frame)

    def observe(self, step: VectorStep) -> None:
        """Stores one vector step; the caller may reuse its arrays."""
        if step.act.state_around is not None:
            self.actor.end_episodes(step.done)
            step = step.packed(step.act.state_around)
        if self.memory is not None:
            self.memory.add(step)

    @property
    def is_due(self) -> bool:
        """Whether a training event is due."""
        return self.memory is not None and self.memory.ready()

    @property
    def num_samples(self) -> int:
        """Samples of the next batch if batches differ in size, else 1."""
        if self.memory is None:
            return 1
        return self.memory.num_samples

    def learn(self, frame: int) -> dict[str, float] | None:
        """Trains if an event is due; returns its report, else None. Raises
        NonFiniteLossError with the statistics of the batch that caused it."""
        if self.memory is None or not self.memory.ready():
            return None
        batch = self.memory.take()
        if self._numbers is not None:
            self.learner.take_numbers(self._numbers.at(frame))
        # NumPy need not warn of what the check of the loss reports.
        with np.errstate(over="ignore", invalid="ignore"), describe_on_error(batch):
            report = read(self.learner.learn(batch, frame))
            self.learner.train_state.check()
        self.actor.version = self.learner.version
        return report

    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Ends the running episodes as truncated, because the environments start new
        ones. `next_obs` (N, …) are the states that they ended in, `raw_next_obs` the
        same before normalisation."""
        if self.memory is not None:
            raw = raw_next_obs
            if raw is None:
                raw = next_obs
            self.memory.break_off(
                self.actor.memory_obs(next_obs), self.actor.memory_obs(raw)
            )
        self.actor.end_episodes(np.ones(len(next_obs), np.bool_))

    @property
    def log(self) -> AppendLog | None:
        """The memory's steps, if they are so many that they are saved piece by piece;
        else None."""
        if self.memory is None:
            return None
        return self.memory.log
