"""When an off-policy algorithm trains, how much, and on what."""

import math
from dataclasses import dataclass

from slm_lab.agent.recurrent_state import RecurrentLayout


@dataclass(frozen=True)
class TrainingSchedule:
    """How many batches are due as transitions are stored. An event of
    `batches_per_event` batches occurs at most once per vector step: when the count of
    stored transitions crosses a multiple of `frequency` and has reached `start`. With
    `update_to_data` the batches per transition stored after `start` are exactly that
    number."""

    frequency: int
    start: int
    batches_per_event: int = 1
    update_to_data: float | None = None

    def due(self, before: int, after: int) -> int:
        """Batches due when the count of stored transitions rises from `before` to
        `after`."""
        if after < self.start:
            return 0
        if self.update_to_data is not None:
            return self._owed(after) - self._owed(before)
        crosses = after // self.frequency > before // self.frequency
        if crosses:
            return self.batches_per_event
        return 0

    def before_training(self, num_envs: int) -> int:
        """Transitions stored before those that gradient steps count against. With
        `update_to_data` these are the first `start`. Otherwise every event, the first
        one included, counts for the transitions between two events."""
        if self.update_to_data is not None:
            return self.start
        first = _round_up(max(self.start, 1), num_envs)
        if not self.due(first - num_envs, first):
            first = _round_up(_round_up(first, self.frequency), num_envs)
        return first - max(self.frequency, num_envs)

    def _owed(self, stored: int) -> int:
        """Batches owed in all, counted from `start`; stateless, so that a resume loses
        none."""
        ratio = self.update_to_data or 0.0
        return math.floor(ratio * max(stored - self.start, 0) + 1e-9)


def _round_up(count: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `count`."""
    return -(-count // unit) * unit


@dataclass(frozen=True)
class ReplayConfig:
    """How an off-policy algorithm replays."""

    schedule: TrainingSchedule
    gamma: float
    num_steps: int
    """n of n-step returns."""
    seed: int
    recurrent: RecurrentLayout | None = None
    """The recurrent state of the networks: with it sequences are sampled, not single
    steps."""
