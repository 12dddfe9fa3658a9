"""An actor on a node of a Ray cluster: it plays what the learner asks for."""

import time
from collections.abc import Mapping
from typing import NamedTuple, final

import numpy as np

from slm_lab.agent.memory.unroll import Unroll, UnrollLayout, packed
from slm_lab.agent.optim.publication import Publication, Weights
from slm_lab.core.allocation import keep_freed_memory
from slm_lab.core.plugins import import_plugins
from slm_lab.core.types import Array, IntArray
from slm_lab.experiment.actor import Player
from slm_lab.experiment.arithmetic import set_arithmetic
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.seeding import SessionSeeds
from slm_lab.experiment.worker import SessionTask


class Played(NamedTuple):
    """An unroll on its way to the learner."""

    arrays: Mapping[str, Array]
    """See `packed`."""
    frame: int
    """Frames that the actor has played so far."""
    waited: float
    """Seconds until it was asked for this one, after the one before."""
    acted: float
    """Seconds in which it was played."""
    cpu_t: float
    """CPU seconds of the process since the one before, or since it was ready."""


@final
class ClusterActor:
    """In one thread it plays, in another it takes weights, and tells how far it is."""

    def __init__(self) -> None:
        self._slots: IntArray = np.zeros(2, np.int64)
        """Its own frames, and those of the other actors as far as the learner knows them."""

    def begin(
        self, task: SessionTask, seeds: SessionSeeds, frame: int, others: int, weights: Weights
    ) -> None:
        """Makes the environments. `task` is the learner's; `frame` are the actor's own so far."""
        keep_freed_memory()
        import_plugins(task.imports)
        set_arithmetic(task.spec.meta.threads)
        self._slots[:] = frame, others
        player = Player(task.spec, seeds)
        layout = UnrollLayout(player.writer.layout, len(player.env.statistics))
        self._unroll = Unroll.allocate(layout)
        self._weights = Publication.of(player.agent.learner.flats, layout.num_statistics)
        self._weights.relay(weights)
        player.begin(Clock(self._slots, 0, task.spec.env.max_frame), self._weights)
        player.reset()
        self._player = player
        self._ended_at, self._cpu_t = time.perf_counter(), time.process_time()

    def play(self, others: int) -> Played:
        """One unroll; `others` are the frames of the other actors."""
        began = time.perf_counter()
        self._slots[1] = others
        self._player.play(self._unroll)
        now, cpu_t = time.perf_counter(), time.process_time()
        waited, cpu_since = began - self._ended_at, cpu_t - self._cpu_t
        self._ended_at, self._cpu_t = now, cpu_t
        return Played(packed(self._unroll), self.frame(), waited, now - began, cpu_since)

    def take(self, weights: Weights) -> None:
        """The next unroll is played with these."""
        self._weights.relay(weights)

    def frame(self) -> int:
        """Of its own so far, those of the unroll that it plays among them."""
        return int(self._slots[0])
