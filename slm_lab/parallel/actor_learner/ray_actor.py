"""An actor on a node of a Ray cluster: it plays the unrolls that the learner
requests."""

import time
from collections.abc import Mapping
from typing import NamedTuple, final

import numpy as np

from slm_lab.core.plugins import import_plugins, look_in_working_directory
from slm_lab.core.process import keep_freed_memory, seed_global_generators
from slm_lab.core.types import Array, IntArray
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.source import ActorSeconds
from slm_lab.parallel.actor_learner.unroll import Unroll, packed
from slm_lab.parallel.actor_learner.weights import Weights
from slm_lab.parallel.task import SessionTask
from slm_lab.session.clock import Clock
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.torch_setup import set_up_torch


class UnrollMessage(NamedTuple):
    """An unroll sent to the learner."""

    arrays: Mapping[str, Array]
    """The unroll's arrays by field, as `packed` makes them."""
    frame: int
    """Frames that the actor has played so far."""
    seconds: ActorSeconds
    """Its seconds since the previous unroll, or since it was ready."""


@final
class RayActor:
    """Plays in one thread; receives weights and reports its frame in another."""

    def __init__(self, folder: str) -> None:
        """`folder` is the working directory of the training, which may hold modules."""
        look_in_working_directory(folder)
        self._slots: IntArray = np.zeros(2, np.int64)
        """Its own frames, and those of the other actors as last reported by the
        learner."""

    def begin(
        self,
        task: SessionTask,
        seeds: SessionSeeds,
        frame: int,
        others: int,
        weights: Weights,
    ) -> None:
        """Makes the environments. `task` is the learner's; `frame` counts this actor's
        so far."""
        keep_freed_memory()
        seed_global_generators(seeds.processes.copies)  # `own` is the learner's
        import_plugins(task.imports)
        set_up_torch(task.spec.meta.threads)
        self._slots[:] = frame, others
        self._actor = UnrollActor(
            task.spec, seeds, Clock(self._slots, 0, task.spec.env.max_frame)
        )
        self._unroll = Unroll.allocate(self._actor.layout)
        self.take(weights)
        self._actor.reset()
        self._ended_at = time.perf_counter()
        self._cpu_t = time.process_time()

    def play(self, others: int) -> UnrollMessage:
        """Plays one unroll; `others` are the frames of the other actors."""
        began = time.perf_counter()
        self._slots[1] = others
        self._actor.play(self._unroll)
        now = time.perf_counter()
        cpu_t = time.process_time()
        seconds = ActorSeconds(began - self._ended_at, now - began, cpu_t - self._cpu_t)
        self._ended_at = now
        self._cpu_t = cpu_t
        return UnrollMessage(packed(self._unroll), self.frame(), seconds)

    def take(self, weights: Weights) -> None:
        """Stores weights for the next unroll."""
        self._actor.weights.relay(weights)

    def frame(self) -> int:
        """Its own frames so far, including those of the running unroll."""
        return int(self._slots[0])
