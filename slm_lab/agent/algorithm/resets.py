"""Periodic resets: networks begin anew, and the replay memory stays
(arXiv:2205.07802)."""

import logging
from collections.abc import Callable
from typing import ClassVar, final

import numpy as np

from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.core.state import SavedFields

logger = logging.getLogger(__name__)


class ResetSync:
    """What a parallel mode adds to a reset; by default nothing, as in independent
    training."""

    def reset(self, due: int, done: int, begin_anew: Callable[[], None]) -> int:
        """Brings the networks to reset number `due`, after `done` resets. `begin_anew`
        gives the networks of this process their new weights. Returns the number of
        resets of the networks so far."""
        if due > done:
            begin_anew()
        return max(due, done)


@final
class Resets(SavedFields):
    """Resets at the first training event after every `frequency` frames of the trial's
    clock. So none comes with the last frame of a budget that is a multiple of it.
    Weights, running statistics and the state of the optimizers become as in a fresh
    agent. Schedules and counters go on. `build` builds its networks from a seed, which
    follows from `seed` and the number of the reset."""

    saved: ClassVar = {"seed": "_seed", "done": "done"}

    def __init__(
        self, frequency: int, seed: int, build: Callable[[int], TrainState]
    ) -> None:
        self._frequency = frequency
        self._seed = seed
        self._build = build
        self.sync = ResetSync()
        self.done = 0
        """The number of resets of the networks so far."""

    def reset(self, train_state: TrainState, frame: int) -> bool:
        """Resets the networks if that is due at the trial's clock `frame`; returns
        whether they have begun anew."""
        due = max(frame - 1, 0) // self._frequency

        def begin_anew() -> None:
            logger.info("reset %d at frame %d: the networks begin anew", due, frame)
            sequence = np.random.SeedSequence((self._seed, due))
            fresh = self._build(int(sequence.generate_state(1)[0]))
            train_state.load_state_dict(fresh.state_dict())

        before = self.done
        self.done = self.sync.reset(due, before, begin_anew)
        return self.done > before
