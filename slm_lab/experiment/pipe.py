"""Between actors and their learner: unrolls one way, weights the other, all in shared memory.

Every actor has a ring of slots of its own, which it fills in turn; the learner gives them back in
the same order. Two counts say all there is to say about a ring, and each has one writer: a slot is
never read while it is written, a process that dies leaves nothing half done that anybody would
read, and its successor goes on with the very slot that it was filling.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from slm_lab.agent.agent import Agent
from slm_lab.agent.memory.unroll import Unroll, UnrollLayout, UnrollWriter
from slm_lab.agent.optim.publication import Publication
from slm_lab.agent.optim.shared_memory import check_room, into_shared_memory
from slm_lab.core.errors import PeerLostError
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.inference import InferenceServer, RemoteActor, Requests
from slm_lab.experiment.progress import Board, Phase
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.spec import Spec

PATIENCE_SECONDS = 3600.0
"""How long a learner for which actors wait may learn nothing: a training event may be long."""
ACTOR_SECONDS = 2 * PATIENCE_SECONDS
"""How long an actor waits for its learner: so long that one that hangs would have been ended."""
HANG_SECONDS = 300.0
"""How long one waits for another who is alive and does nothing."""
NAP_SECONDS = 0.0002
"""How long one sleeps between two looks."""
SMALLER = (
    "fewer environments (env.num_envs), shorter or fewer unrolls take less "
    "(meta.actor_learner: unroll_length, learn_queue, queue_size)"
)
ENDED = (Phase.DONE, Phase.STOPPED)
"""Phases of an actor that has come to its own end. One that says it failed may be replaced."""


def slots_per_actor(meta: MetaSpec) -> int:
    """Q: its part of what the learner learns from at once, and those that it may fill meanwhile."""
    flow = meta.actor_learner
    return -(-flow.learn_queue // meta.max_session) + flow.queue_size


@final
@dataclass(frozen=True)
class Pipe:
    """What N actors and one learner have in common, made before they begin."""

    layout: UnrollLayout
    slots: Tensor
    """(N, Q, `num_bytes`) uint8"""
    counts: Tensor
    """(3, N) int64: unrolls that an actor has begun, and handed over; those of them that the
    learner has given back"""
    seconds: Tensor
    """(3, N) float64 by each actor: waited for slots and answers, acted, and of the CPU"""
    weights: Publication
    requests: Requests | None
    """Where actors ask the learner for actions; None: they have networks of their own."""
    flags: Tensor
    """(2,) int64 by the learner: it has ended; it stands aside"""
    lost: Tensor
    """(N,) int64 by their parent: 1 for an actor that has died and is not replaced"""
    max_unrolls: int
    """The budget: no actor begins one that would be more."""

    @classmethod
    def of(cls, spec: Spec, agent: Agent, env: VectorEnv, frame: int) -> "Pipe":
        """For actors such as `agent` in `env`, whose memory is an `UnrollWriter`; `frame` are those
        that are spent already. Raises LabError where shared memory has no room for it."""
        assert isinstance(agent.memory, UnrollWriter)
        layout = UnrollLayout(agent.memory.layout, len(env.statistics))
        actors, per_unroll = spec.meta.max_session, layout.frames
        is_remote = spec.meta.actor_learner.inference == "learner"
        size = (actors, slots_per_actor(spec.meta), layout.num_bytes)
        check_room(math.prod(size), "the unrolls of all actors", f"make room there; {SMALLER}")
        return cls(
            layout,
            into_shared_memory(torch.zeros(size, dtype=torch.uint8)),
            into_shared_memory(torch.zeros((3, actors), dtype=torch.int64)),
            into_shared_memory(torch.zeros((3, actors), dtype=torch.float64)),
            Publication.of(agent.learner.flats, len(env.statistics), into_shared_memory),
            Requests.of(layout.steps, actors, into_shared_memory) if is_remote else None,
            into_shared_memory(torch.zeros(2, dtype=torch.int64)),
            into_shared_memory(torch.zeros(actors, dtype=torch.int64)),
            -(-max(spec.env.max_frame - frame, 0) // per_unroll),
        )


class PipeEnd:
    """Either end: the rings as arrays."""

    def __init__(self, pipe: Pipe, board: Board) -> None:
        self.weights = pipe.weights
        self._board = board
        self._begun, self._handed, self._returned = pipe.counts.numpy()
        self._seconds = pipe.seconds.numpy()
        self._flags = pipe.flags.numpy()
        self._lost = pipe.lost.numpy()
        self._max_unrolls = pipe.max_unrolls
        self._unrolls = [
            [Unroll.within(slot, pipe.layout) for slot in ring] for ring in pipe.slots.numpy()
        ]
        self.num_actors = len(self._unrolls)
        self.num_slots = len(self._unrolls[0])


@final
class ActorEnd(PipeEnd):
    """One actor's."""

    def __init__(self, pipe: Pipe, board: Board, actor: int) -> None:
        super().__init__(pipe, board)
        self._actor = actor
        self._remote = None
        if pipe.requests is not None:
            self._remote = RemoteActor(pipe.requests, pipe.layout.steps, actor, self._wait)
        self._waited_for_answers = 0.0
        self._cpu_t_before = float(self._seconds[2, actor])
        self._cpu_began: float | None = None
        """When it began to act; what it took to start is not training."""
        self._begun[actor] = self._handed[actor]  # what one has left half done that died here

    @property
    def is_over(self) -> bool:
        """Whether nobody wants any more steps."""
        return bool(self._flags[0]) or self._board.stop_requested

    def wait_for_weights(self) -> bool:
        """Until the learner has published something; False where it is over before.

        Raises PeerLostError where that takes too long.
        """
        return not self.is_over and self._wait(lambda: self.weights.count > 0)

    def acting_half(self) -> RemoteActor | None:
        """What asks the learner for actions; None where an actor has a network of its own."""
        return self._remote

    def next_slot(self) -> Unroll | None:
        """Where the next unroll goes, as soon as there is room; None where none is wanted any more.

        Raises PeerLostError where that takes too long.
        """
        actor, began = self._actor, time.perf_counter()
        if self._cpu_began is None:
            self._cpu_began = time.process_time()
        in_use = self._handed[actor]
        if not self._claim():
            return None
        before = float(self._seconds[0, actor])

        def has_room() -> bool:
            """Notes the time that passes, too: a row may come before the wait is over."""
            self._seconds[0, actor] = before + time.perf_counter() - began
            return bool(in_use - self._returned[actor] < self.num_slots)

        is_free = self._wait(has_room)
        return self._unrolls[actor][in_use % self.num_slots] if is_free else None

    def hand_over(self, seconds: float) -> None:
        """The slot is full; it took that long to fill it, what it waited for answers included."""
        waited = 0.0 if self._remote is None else self._remote.waited
        for_this, self._waited_for_answers = waited - self._waited_for_answers, waited
        self._seconds[0, self._actor] += for_this
        self._seconds[1, self._actor] += seconds - for_this
        assert self._cpu_began is not None
        spent = time.process_time() - self._cpu_began
        self._seconds[2, self._actor] = self._cpu_t_before + spent
        self._handed[self._actor] += 1

    def _claim(self) -> bool:
        """Whether the budget has room for one more. Those that died on the way do not count.

        Actors that ask in the very same moment may all have the last one: better than none.
        """
        is_lost = [self._phase(actor) is Phase.FAILED for actor in range(self.num_actors)]
        claimed = sum(
            int(self._handed[actor] if is_lost[actor] else self._begun[actor])
            for actor in range(self.num_actors)
        )
        if claimed >= self._max_unrolls:
            return False
        self._begun[self._actor] += 1
        return True

    def _phase(self, actor: int) -> Phase:
        return self._board.phase(1 + actor)

    def _wait(self, until: Callable[[], bool], nap: float = NAP_SECONDS) -> bool:
        began = time.perf_counter()
        while not until():
            if self.is_over:
                return False
            if self._flags[1]:
                began = time.perf_counter()  # it does something else, which takes its time
            elif time.perf_counter() - began > ACTOR_SECONDS:
                raise PeerLostError(
                    f"actor {self._actor} waited {ACTOR_SECONDS:g} s for the learner, in vain"
                )
            time.sleep(nap)
        return True


@final
class LearnerEnd(PipeEnd):
    """The learner's."""

    def __init__(self, pipe: Pipe, board: Board, server: InferenceServer | None = None) -> None:
        super().__init__(pipe, board)
        self._server = server
        if server is not None:
            server.start()
        self._taken = self._returned.copy()
        self._idle_since: float | None = None
        self._frames = 0

    def look(self) -> None:
        """Their parent looks after the actors."""

    def begin(self) -> None:
        """Actors begin their episodes by themselves."""

    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The oldest unroll that waits, with the number of its actor; None where none comes within
        that time.

        It stays as it is until `give_back`. Raises PeerLostError where no actor has made a step for
        too long: so long that one that hung would have been replaced.
        """
        began = time.perf_counter()
        if self._server is not None:
            self._server.check()
        while True:
            waiting = (self._handed > self._taken).nonzero()[0].tolist()
            if waiting:
                actor = min(waiting, key=lambda each: self._oldest(each).handed_at)
                unroll = self._oldest(actor)
                self._taken[actor] += 1
                self._idle_since = None
                return actor, unroll
            now, frames = time.perf_counter(), int(self._board.clock_slots[1:].sum())
            if self._idle_since is None or frames != self._frames:
                self._idle_since, self._frames = now, frames
            if now - self._idle_since > 2 * HANG_SECONDS:
                raise PeerLostError(f"no actor has made a step for {2 * HANG_SECONDS:g} s")
            if now - began >= seconds:
                return None
            time.sleep(NAP_SECONDS)

    def _oldest(self, actor: int) -> Unroll:
        slot: Unroll = self._unrolls[actor][self._taken[actor] % self.num_slots]
        return slot

    def give_back(self, actor: int) -> None:
        """The actor may write over the oldest unroll of its that the learner has."""
        self._returned[actor] += 1

    @property
    def nothing_comes(self) -> bool:
        """Whether all actors have ended for good and all that they made was received."""
        for actor in range(self.num_actors):
            if not self._lost[actor] and self._board.phase(1 + actor) not in ENDED:
                return False
        return bool((self._handed == self._taken).all())

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that all actors together have waited for slots and answers, and acted."""
        waited, acted, _ = self._seconds.sum(1)
        return float(waited), float(acted)

    @property
    def cpu_t(self) -> float:
        """CPU seconds of the actors' processes."""
        return float(self._seconds[2].sum())

    def end(self) -> None:
        """No unroll is wanted any more."""
        self._flags[0] = 1

    def stand_aside(self, aside: bool) -> None:
        """Tells the actors whether the learner does something else, for as long as that takes."""
        self._flags[1] = aside
        self._idle_since = None

    def state_dict(self) -> StateDict:
        """Nothing: who resumes a run has other actors, who begin anew."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """See `state_dict`."""

    def close(self) -> None:
        """Answers no more; the memory is freed when all have ended."""
        if self._server is not None:
            self._server.close()
