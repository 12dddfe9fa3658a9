"""The learner's source of unrolls from actors on the nodes of a Ray cluster.

Each actor is a Ray actor of the learner's process, and ends with it. Its unrolls stay
in Ray's object store until the learner receives them. A `Supervisor` replaces a lost
actor wherever there is room, whenever the learner requests an unroll. No call blocks
for long, whatever nodes do."""

import logging
import math
import os
import re
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.core.errors import LabError
from slm_lab.core.plugins import import_plugins, look_in_working_directory
from slm_lab.core.process import keep_freed_memory, seed_global_generators
from slm_lab.core.types import Array, IntArray
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.queue import slots_per_actor
from slm_lab.parallel.actor_learner.source import ActorSeconds, UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll, packed, unpacked
from slm_lab.parallel.actor_learner.weights import Weights, WeightStore
from slm_lab.parallel.hang_detector import HANG_SECONDS
from slm_lab.parallel.ray.connect import connected, loss_reason, missing_resources
from slm_lab.parallel.supervisor import Runner, SessionEnd, Supervisor, replacement
from slm_lab.parallel.task import SessionTask
from slm_lab.session.build import set_up_torch
from slm_lab.session.experience import Clock
from slm_lab.session.seeding import SessionSeeds, session_seeds
from slm_lab.session.status_board import Phase, StatusBoard


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
        """Its own frames, and the frames of the other actors as last reported by the
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
        seed_global_generators(seeds.processes.copies)  # `session` is the learner's
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
        """Its own frames so far, including the running unroll."""
        return int(self._slots[0])


logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""Interval between two checks of the actors."""
NAP_SECONDS = 0.01
"""Polling interval if no request is pending."""
INLINE_BYTES = 100_000
"""Weights up to this size are passed as arguments. Larger ones go to the object store,
because Ray would send them to the same node twice."""
CONTROL_GROUP = "control"
"""The concurrency group of calls that run while an actor plays."""
GROUPS = {CONTROL_GROUP: 1}
"""Threads per concurrency group; `play` is in the default group, with its own
thread."""

ANSI_COLOURS = re.compile(r"\x1b\[\d+m")

Ref: TypeAlias = Any
"""A Ray object reference to the result of a call."""


@dataclass
class ActorHandle:
    """A Ray actor and its pending calls, if any."""

    remote: Any
    begin_ref: Ref
    """The pending `begin` call, which makes its environments; None once it has
    ended."""
    taken: int
    """The version of the weights last sent to it."""
    plays: deque[tuple[int, Ref]] = field(default_factory=deque)
    """Pending `play` calls in order, each with its number among the calls of all
    actors."""
    take_ref: Ref = None
    """The `take` call for that version."""
    frame_ref: Ref = None
    end: SessionEnd | None = None
    """The end of a lost actor."""

    @property
    def may_play(self) -> bool:
        """Whether the actor is ready to play."""
        return self.begin_ref is None and self.end is None


@final
class RaySource(UnrollSource, Runner):
    """An `UnrollSource` of Ray actors, which it also runs for their `Supervisor`."""

    def __init__(
        self,
        task: SessionTask,
        status_board: StatusBoard,
        agent: LearningAgent,
        env: VectorEnv,
        lost: Connection,
    ) -> None:
        spec = task.spec
        self.num_actors = spec.meta.max_session
        self.weights = WeightStore.of(agent.learner.flats, len(env.statistics))
        self._task = task
        self._losses = lost
        self._learner_frame = int(status_board.clock_slots[0])
        self._status_board = status_board.part(range(1, 1 + self.num_actors))
        self._frames = self._status_board.clock_slots
        self.num_slots = slots_per_actor(spec.meta)
        """Maximum number of an actor's unrolls that are pending or held by the
        learner."""
        self._held = [0] * self.num_actors
        self._handles: dict[int, ActorHandle] = {}
        """Handles of the started actors."""
        self.running = self._handles.keys()
        frames = spec.unroll_length * spec.env.num_envs
        self._max_unrolls = -(
            -max(spec.env.max_frame - self._learner_frame, 0) // frames
        )
        self._wanted = 0
        """Unrolls that were received or are still pending."""
        self._num_requests = 0
        self._newest: tuple[int, Any] = (0, None)
        """A version of the weights, and the argument that passes it to Ray."""
        self._seconds = np.zeros(len(ActorSeconds._fields))
        self._looked_at = -math.inf
        tasks = [replace(task, session=actor) for actor in range(self.num_actors)]
        self._supervisor = Supervisor(
            self,
            tasks,
            self._status_board,
            restart=replacement,
            max_restart=spec.meta.max_restart,
        )
        self._supervisor.watch(range(self.num_actors), self._due, limit=HANG_SECONDS)
        self._closing = ExitStack()
        self._closing.enter_context(connected(str(spec.meta.cluster)))
        missing = missing_resources(
            self.num_actors, "actors", {"CPU": spec.meta.threads}
        )
        if missing is not None:
            self.close()
            raise LabError(missing)

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The arrived unroll with the oldest request."""
        self.poll()
        pending = [
            (*handle.plays[0], actor)
            for actor, handle in self._handles.items()
            if handle.plays
        ]
        if not pending:
            time.sleep(min(seconds, NAP_SECONDS))
            return None
        actors = {
            play: actor
            for _, play, actor in sorted(pending, key=lambda entry: entry[0])
        }
        ready, _ = ray.wait(list(actors), timeout=seconds)
        if not ready:
            return None
        actor = actors[ready[0]]
        handle = self._handles[actor]
        try:
            message: UnrollMessage = ray.get(ready[0])
        except RayError as error:
            handle.end = _end(actor, error)
            return None
        handle.plays.popleft()
        self._held[actor] += 1
        self._note_frame(actor, message.frame)
        self._seconds += message.seconds
        return actor, unpacked(message.arrays)

    @override
    def give_back(self, actor: int) -> None:
        """Releases one of the actor's unrolls and requests another."""
        self._held[actor] -= 1
        self._send_weights()
        self._request(actor)

    @override
    def poll(self) -> None:
        if self.weights.count == 0 or self._status_board.stop_requested:
            return
        self._send_weights()
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        num_failed = len(self._supervisor.failed)
        self._supervisor.tick(0.0)
        for lost in self._supervisor.failed[num_failed:]:
            logger.error("actor %d is lost: %s", lost.session, lost.error)
            self._losses.send(lost)
        for _ in range(self.num_slots):
            for actor in self._handles:
                self._request(actor)

    @override
    def start(self, task: SessionTask) -> None:
        learner = self._task
        actor = task.session
        if task.replaces is not None:
            logger.warning("actor %d is replaced: %s", actor, task.replaces)
        options: dict[str, Any] = {
            "num_cpus": task.spec.meta.threads,
            "concurrency_groups": GROUPS,
        }
        kind: Any = ray.remote(scheduling_strategy="SPREAD", **options)(RayActor)
        remote = kind.remote(os.getcwd())
        taken, weights = self._newest_weights()
        frame = int(self._frames[actor])
        others = self._frames_of_others(actor)
        session = learner.session + actor
        since = self._learner_frame + frame
        seeds = session_seeds(learner.root_seed, learner.trial, session, since)
        spec = learner.spec.of_session(learner.trial, learner.session + 1 + actor)
        actor_task = replace(learner, spec=spec)
        beginning = remote.begin.remote(
            actor_task, seeds, frame=frame, others=others, weights=weights
        )
        self._handles[actor] = ActorHandle(remote, beginning, taken)
        self._status_board.write(actor, phase=Phase.STARTING)

    @override
    def ended(self, seconds: float) -> list[SessionEnd]:
        """Does not wait. Drops the pending unrolls of lost actors."""
        for actor, handle in self._handles.items():
            try:
                self._look_at(actor, handle)
            except RayError as error:
                handle.end = handle.end or _end(actor, error)
        ended = [
            handle.end for handle in self._handles.values() if handle.end is not None
        ]
        for end in ended:
            lost = self._handles.pop(end.session)
            ray.kill(lost.remote)
            self._wanted -= len(lost.plays)
        return ended

    @override
    def kill(self, session: int) -> None:
        self._handles[session].end = SessionEnd(session, None, lost=True)

    def _look_at(self, actor: int, handle: ActorHandle) -> None:
        """Processes its completed calls. Raises RayError if it is lost."""
        if handle.begin_ref is not None and _is_ready(handle.begin_ref):
            ray.get(handle.begin_ref)
            handle.begin_ref = None
            self._status_board.write(actor, phase=Phase.READY)
        if handle.frame_ref is not None and _is_ready(handle.frame_ref):
            self._note_frame(actor, *ray.get([handle.frame_ref]))
            handle.frame_ref = None
        if handle.may_play and handle.frame_ref is None:
            handle.frame_ref = _control(handle.remote.frame).remote()

    def _due(self, actor: int) -> bool | None:
        handle = self._handles.get(actor)
        if handle is None:
            return None
        acts = bool(handle.plays) and not _is_ready(handle.plays[-1][1])
        if acts or handle.begin_ref is not None:
            return True
        return None

    def _note_frame(self, actor: int, frame: int) -> None:
        self._frames[actor] = max(frame, self._frames[actor])

    def _frames_of_others(self, actor: int) -> int:
        return int(self._frames.sum() - self._frames[actor])

    def _newest_weights(self) -> tuple[int, Any]:
        """The newest version of the weights, and the argument for a remote call, which
        the object store gets once."""
        count = self.weights.count
        if self._newest[0] != count:
            weights = self.weights.newest()
            is_small = weights.vector.nbytes + weights.statistics.nbytes < INLINE_BYTES
            self._newest = count, weights if is_small else ray.put(weights)
        return self._newest

    def _send_weights(self) -> None:
        for handle in self._handles.values():
            if not handle.may_play or handle.taken == self.weights.count:
                continue
            if handle.take_ref is None or _is_ready(handle.take_ref):
                handle.taken, weights = self._newest_weights()
                handle.take_ref = _control(handle.remote.take).remote(weights)

    def _request(self, actor: int) -> None:
        handle = self._handles.get(actor)
        if handle is None or not handle.may_play or self._wanted >= self._max_unrolls:
            return
        if self._held[actor] + len(handle.plays) >= self.num_slots:
            return
        request = handle.remote.play.remote(self._frames_of_others(actor))
        handle.plays.append((self._num_requests, request))
        self._num_requests += 1
        self._wanted += 1
        self._status_board.write(actor, phase=Phase.RUNNING)

    @property
    @override
    def is_exhausted(self) -> bool:
        pending = any(handle.plays for handle in self._handles.values())
        is_spent = self._wanted >= self._max_unrolls and not pending
        return is_spent or len(self._supervisor.failed) == self.num_actors

    @property
    @override
    def seconds(self) -> ActorSeconds:
        return ActorSeconds(*self._seconds.tolist())

    @override
    def end(self) -> None:
        phase = Phase.STOPPED if self._status_board.stop_requested else Phase.DONE
        failed = {end.session for end in self._supervisor.failed}
        for actor in set(range(self.num_actors)) - failed:
            self._status_board.write(actor, phase=phase)
        self._kill_all()

    @override
    def close(self) -> None:
        self._kill_all()
        self._closing.close()

    def _kill_all(self) -> None:
        for handle in self._handles.values():
            ray.kill(handle.remote)
        self._handles.clear()


def _is_ready(ref: Ref) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def _control(method: Any) -> Any:
    return method.options(concurrency_group=CONTROL_GROUP)


def _end(actor: int, error: RayError) -> SessionEnd:
    """The end of an actor; for the lab's own errors the reason is only the message."""
    if not isinstance(error, RayTaskError):
        return SessionEnd(actor, None, loss_reason(error), lost=True)
    cause = error.cause
    why = (
        str(cause)
        if isinstance(cause, LabError)
        else ANSI_COLOURS.sub("", str(error)).strip()
    )
    return SessionEnd(actor, None, why)
