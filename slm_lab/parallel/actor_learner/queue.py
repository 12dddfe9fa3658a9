"""The shared-memory queue: unrolls from actors to the learner, and weights back.

Every actor has its own ring of slots, which it fills in turn. The learner returns them
in the same order. Two counts, each with one writer, describe a ring. So no slot is read
while it is written. A dead process leaves no readable partial data; its successor
refills the slot."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.core.errors import PeerLostError
from slm_lab.core.types import Array
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.actor_learner.inference import (
    InferenceClient,
    InferenceServer,
    request_record,
)
from slm_lab.parallel.actor_learner.source import ActorSeconds, UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollLayout, UnrollWriter
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.shared_memory import check_room, into_shared_memory
from slm_lab.parallel.wait import LONGEST_SECONDS, wait_until
from slm_lab.session.status_board import END, PAUSED, Phase, StatusBoard
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.spec import Spec

POLL_SECONDS = 0.0002
SMALLER = (
    "fewer environments (env.num_envs), shorter or fewer unrolls take less "
    "(meta.actor_learner: unroll_length, learn_queue, queue_size)"
)
ENDED = (Phase.DONE, Phase.STOPPED, Phase.FAILED)
"""Phases of an actor that has ended for good."""
DEAD = (Phase.WAITING, Phase.FAILED)
"""Phases of an actor that has died, replaced or not, or has not started."""
RING = np.dtype(
    [(name, np.int64) for name in ("begun", "handed", "returned")]
    + [(name, np.float64) for name in ActorSeconds._fields]
)
"""An actor's ring: counts of unrolls begun, handed over and given back; and the actor's
seconds."""


def slots_per_actor(meta: MetaSpec) -> int:
    """Q: an actor's share of `learn_queue`, and `queue_size` slots to fill
    meanwhile."""
    flow = meta.actor_learner
    return -(-flow.learn_queue // meta.max_session) + flow.queue_size


@final
@dataclass(frozen=True)
class UnrollQueue:
    """The memory that N actors and one learner share; allocated by their parent."""

    layout: UnrollLayout
    slots: Tensor
    """(N, Q, bytes) uint8: records of unrolls"""
    ring_bytes: Tensor
    """(N, bytes) uint8: see `rings`"""
    weights: WeightStore
    requests: Tensor | None
    """(N, bytes) uint8: records of central inference; None: actors have their own
    networks"""
    max_unrolls: int
    """The budget: no actor begins an unroll beyond it."""

    @classmethod
    def of(
        cls, spec: Spec, agent: LearningAgent, env: VectorEnv, frame: int
    ) -> "UnrollQueue":
        """A queue for actors like `agent` in `env`, whose memory is an `UnrollWriter`.
        `frame` is the number of frames already spent. Raises LabError if shared memory
        has no room."""
        assert isinstance(agent.memory, UnrollWriter)
        layout = UnrollLayout(agent.memory.layout, len(env.statistics), env.num_info)
        actors = spec.meta.max_session
        steps = layout.steps
        requests = None
        if spec.meta.actor_learner.inference == "learner":
            num_bytes = request_record(steps).itemsize
            requests = into_shared_memory(
                torch.zeros((actors, num_bytes), dtype=torch.uint8)
            )
        size = (actors, slots_per_actor(spec.meta), layout.record.itemsize)
        check_room(
            math.prod(size), "the unrolls of all actors", f"make room there; {SMALLER}"
        )
        slots = torch.zeros(size, dtype=torch.uint8)
        rings = torch.zeros((actors, RING.itemsize), dtype=torch.uint8)
        frames_left = max(spec.env.max_frame - frame, 0)
        # At least one agent of each copy acts in every step.
        fewest = steps.horizon * (steps.num_envs // env.num_agents)
        return cls(
            layout=layout,
            slots=into_shared_memory(slots),
            ring_bytes=into_shared_memory(rings),
            weights=WeightStore.of(
                agent.learner.flats, len(env.statistics), into_shared_memory
            ),
            requests=requests,
            max_unrolls=-(-frames_left // fewest),
        )

    @property
    def rings(self) -> Array:
        """The records of the rings, (N,) of `RING`."""
        return self.ring_bytes.numpy().view(RING)[:, 0]

    @property
    def request_records(self) -> Array | None:
        """(N,) The records of central inference, see `request_record`."""
        if self.requests is None:
            return None
        return self.requests.numpy().view(request_record(self.layout.steps))[:, 0]


class QueueEnd:
    """Base of both ends: the rings as arrays."""

    def __init__(self, queue: UnrollQueue, status_board: StatusBoard) -> None:
        self.weights = queue.weights
        self._status_board = status_board
        self._rings = queue.rings
        self._max_unrolls = queue.max_unrolls
        self._unrolls = [
            [Unroll.within(slot, queue.layout) for slot in ring]
            for ring in queue.slots.numpy()
        ]
        self.num_actors = len(self._unrolls)
        self.num_slots = len(self._unrolls[0])


@final
class ActorQueue(QueueEnd):
    """One actor's end."""

    def __init__(
        self, queue: UnrollQueue, status_board: StatusBoard, actor: int
    ) -> None:
        super().__init__(queue, status_board)
        self._actor = actor
        self._ring = ring = self._rings[actor]
        self.acting_half: InferenceClient | None = None
        """The client of central inference; None if the actor has its own network."""
        if queue.request_records is not None:
            self.acting_half = InferenceClient(queue.request_records[actor], self._wait)
        self._cpu_t_before = float(ring["cpu_t"])
        self._cpu_began: float | None = None
        """The time at which it began to act; its start is not counted as training."""
        self._waited_before = 0.0
        """Its seconds of waiting when it got its slot."""
        ring["begun"] = ring["handed"]  # drops a dead predecessor's partial unroll

    @property
    def is_over(self) -> bool:
        """Whether no more steps are needed."""
        return (
            bool(self._status_board.at_barrier[0] == END)
            or self._status_board.stop_requested
        )

    def wait_for_weights(self) -> bool:
        """Waits for the first published weights; False if the training ends first.
        Raises PeerLostError if that takes too long."""
        return not self.is_over and self._bounded(
            lambda: self.weights.count > 0, POLL_SECONDS
        )

    def next_slot(self) -> Unroll | None:
        """Waits for a free slot for the next unroll; None if no more are needed. Raises
        PeerLostError if that takes too long."""
        ring = self._ring
        if self._cpu_began is None:
            self._cpu_began = time.process_time()
        handed = int(ring["handed"])
        if not self._claim():
            return None
        if not self._wait(
            lambda: bool(handed - ring["returned"] < self.num_slots), POLL_SECONDS
        ):
            return None
        self._waited_before = float(ring["waited"])
        return self._unrolls[self._actor][handed % self.num_slots]

    def hand_over(self, seconds: float) -> None:
        """Hands over the full slot, filled in `seconds`, waits for replies included."""
        ring = self._ring
        ring["acted"] += seconds - (ring["waited"] - self._waited_before)
        assert self._cpu_began is not None
        ring["cpu_t"] = self._cpu_t_before + time.process_time() - self._cpu_began
        ring["handed"] += 1

    def _claim(self) -> bool:
        """Whether the budget has room for one more unroll. Unrolls of dead actors do
        not count. Actors that claim at the same moment may all get the last one, which
        is better than none."""
        is_dead = [
            self._status_board.phase(1 + actor) in DEAD
            for actor in range(self.num_actors)
        ]
        claimed = np.where(is_dead, self._rings["handed"], self._rings["begun"]).sum()
        if claimed >= self._max_unrolls:
            return False
        self._ring["begun"] += 1
        return True

    def _wait(self, until: Callable[[], bool], nap: float) -> bool:
        """Waits as `_bounded` does; adds the time to `waited` at every poll, for rows
        written meanwhile."""
        before = float(self._ring["waited"])
        began = time.perf_counter()

        def is_true() -> bool:
            self._ring["waited"] = before + time.perf_counter() - began
            return until()

        return self._bounded(is_true, nap)

    def _bounded(self, until: Callable[[], bool], nap: float) -> bool:
        """Whether `until` comes true before the training ends. Raises PeerLostError if
        too late."""
        if not wait_until(lambda: until() or self.is_over, LONGEST_SECONDS, nap):
            raise PeerLostError(
                f"actor {self._actor}: the learner did not respond within "
                f"{LONGEST_SECONDS:g} s"
            )
        return until()


@final
class LearnerQueue(QueueEnd, UnrollSource):
    """The learner's end."""

    def __init__(
        self,
        queue: UnrollQueue,
        status_board: StatusBoard,
        server: InferenceServer | None = None,
    ) -> None:
        super().__init__(queue, status_board)
        self._server = server
        if server is not None:
            server.start()
        self._taken = self._rings["returned"].copy()

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """Raises the error of central inference, if any."""
        if self._server is not None:
            self._server.check()
        if not wait_until(lambda: bool(self._waiting()), seconds, POLL_SECONDS):
            return None
        actor = min(self._waiting(), key=lambda number: self._oldest(number).handed_at)
        unroll = self._oldest(actor)
        self._taken[actor] += 1
        return actor, unroll

    def _waiting(self) -> list[int]:
        return (self._rings["handed"] > self._taken).nonzero()[0].tolist()

    def _oldest(self, actor: int) -> Unroll:
        return self._unrolls[actor][self._taken[actor] % self.num_slots]

    @override
    def give_back(self, actor: int) -> None:
        self._rings["returned"][actor] += 1

    @property
    @override
    def is_exhausted(self) -> bool:
        have_ended = all(
            self._status_board.phase(1 + actor) in ENDED
            for actor in range(self.num_actors)
        )
        return have_ended and not self._waiting()

    @property
    @override
    def seconds(self) -> ActorSeconds:
        return ActorSeconds(
            *(float(self._rings[name].sum()) for name in ActorSeconds._fields)
        )

    @override
    def end(self) -> None:
        self._status_board.at_barrier[0] = END

    @override
    def pause_actors(self, paused: bool) -> None:
        self._status_board.at_barrier[0] = PAUSED if paused else 0

    @override
    def close(self) -> None:
        """Stops central inference; the memory is freed when all processes have
        ended."""
        if self._server is not None:
            self._server.close()
