"""The learner's source of unrolls from actors on the nodes of a Ray cluster.

Each is a Ray actor, owned by the learner's process, with which it ends. Its unrolls stay in Ray's
object store until the learner receives them. A lost actor is replaced wherever there is room. No
call here blocks for long, whatever happens on the nodes: supervision runs whenever the learner
requests an unroll.
"""

import logging
import re
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, final

import ray
from ray.exceptions import RayError, RayTaskError
from typing_extensions import override

from slm_lab.agent.agent import Agent
from slm_lab.core.errors import LabError
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.actor_learner.queue import slots_per_actor
from slm_lab.parallel.actor_learner.source import UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll, unpacked
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.hang_detector import HANG_SECONDS, HangDetector
from slm_lab.parallel.ray.actor import RayActor, UnrollMessage
from slm_lab.parallel.ray.connect import connected, lack, why_lost
from slm_lab.parallel.task import SessionTask
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.unrolls import unroll_length

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""Interval between two checks of the actors."""
NAP_SECONDS = 0.01
"""Polling interval if no request is pending."""
INLINE_BYTES = 100_000
"""Weights up to this size are passed as arguments. Larger ones go to the object store, because Ray
would send them to the same node twice."""
BESIDE = "beside"
"""The concurrency group of calls that run while an actor plays."""
GROUPS = {BESIDE: 1}
"""Threads per concurrency group; `play` is in the default group, with its own thread."""

COLOURS = re.compile(r"\x1b\[\d+m")
"""ANSI colours in Ray's tracebacks."""

Ref: TypeAlias = Any
"""A Ray object reference to the result of a call."""


@dataclass
class ActorHandle:
    """One actor and its pending calls."""

    actor: int
    frame: int
    """Frames played by this actor and those that it replaced."""
    restarts: int = 0
    held: int = 0
    """Unrolls that the learner holds."""
    is_lost: bool = False
    """Whether it is lost for good."""
    ray_actor: Any = None
    """The Ray actor; None if one must be started."""
    began_at: int = 0
    """The frame at which it started."""
    beginning: Ref = None
    """The pending `begin` call, which makes its environments."""
    plays: deque[tuple[int, Ref]] = field(default_factory=deque)
    """Pending `play` calls in order, each with its number among those of all actors."""
    taken: int = 0
    """The number of the last publication sent to it."""
    taking: Ref = None
    """The pending `take` call for that publication."""
    asking: Ref = None
    """The pending `frame` call."""

    @property
    def may_play(self) -> bool:
        """Whether the actor is ready to play."""
        return self.ray_actor is not None and self.beginning is None


@final
class RaySource(UnrollSource):
    """An `UnrollSource` of Ray actors."""

    def __init__(
        self,
        task: SessionTask,
        board: StatusBoard,
        agent: Agent,
        env: VectorEnv,
        losses: Connection,
    ) -> None:
        spec = task.spec
        self.num_actors = spec.meta.max_session
        self.weights = WeightStore.of(agent.learner.flats, len(env.statistics))
        self._task, self._board, self._losses = task, board, losses
        self._meta = spec.meta
        self.num_slots = slots_per_actor(spec.meta)
        """Maximum number of an actor's unrolls that are pending or held by the learner."""
        clock = board.clock_slots
        self._handles = [ActorHandle(n, int(clock[1 + n])) for n in range(self.num_actors)]
        frames = unroll_length(spec) * spec.env.num_envs
        self._max_unrolls = -(-max(spec.env.max_frame - int(clock[0]), 0) // frames)
        self._wanted = 0
        """Unrolls that were received or are still pending."""
        self._num_requests = 0
        self._newest: tuple[int, Any] = (0, None)
        """The number of a publication, and the argument that passes it to Ray."""
        self._waited = self._acted = self._cpu_t = 0.0
        self._looked_at = time.monotonic()
        self._hang_detector = HangDetector(self.num_actors, self._sign)
        self._look_asap = True
        self._closing = ExitStack()
        self._closing.enter_context(connected(str(spec.meta.cluster)))
        missing = lack(self.num_actors, "actors", {"CPU": spec.meta.threads})
        if missing is not None:
            self.close()
            raise LabError(missing)

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """Of the unrolls that have arrived, the one requested first."""
        self.poll()
        playing = [handle for handle in self._handles if handle.plays]
        playing.sort(key=lambda handle: handle.plays[0][0])
        if not playing:
            time.sleep(min(seconds, NAP_SECONDS))
            return None
        by_play = {handle.plays[0][1]: handle for handle in playing}
        ready, _ = ray.wait(list(by_play), timeout=seconds)
        if not ready:
            return None
        handle = by_play[ready[0]]
        try:
            message: UnrollMessage = ray.get(ready[0])
        except RayError as error:
            self._lose(handle, error)
            return None
        handle.plays.popleft()
        handle.held += 1
        self._note_frame(handle, message.frame)
        self._waited += message.waited
        self._acted += message.acted
        self._cpu_t += message.cpu_t
        return handle.actor, unpacked(message.arrays)

    @override
    def give_back(self, actor: int) -> None:
        """Releases one of the actor's unrolls and requests another."""
        self._handles[actor].held -= 1
        self._send_weights()
        self._request(self._handles[actor])

    @override
    def poll(self) -> None:
        """Starts actors, replaces lost ones and requests unrolls. Cheap: it may be called at any
        time."""
        if self.weights.count == 0 or self._board.stop_requested:
            return
        self._send_weights()
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS and not self._look_asap:
            return
        self._looked_at, self._look_asap = now, False
        for handle in list(self._handles):
            if handle.is_lost:
                continue
            if handle.ray_actor is None:
                self._start(handle)
                continue
            try:
                self._look_at(handle)
            except RayError as error:
                self._lose(handle, error)
        for handle in [self._handles[actor] for actor in self._hang_detector.hung()]:
            what = "step" if handle.may_play else "start"
            self._lose(handle, f"its {what} has not ended for {HANG_SECONDS:g} s")
        for _ in range(self.num_slots):
            for handle in self._handles:
                self._request(handle)

    def _start(self, handle: ActorHandle) -> None:
        task, actor = self._task, handle.actor
        options: dict[str, Any] = {"num_cpus": task.spec.meta.threads, "concurrency_groups": GROUPS}
        handle.ray_actor = ray.remote(scheduling_strategy="SPREAD", **options)(RayActor).remote()
        handle.began_at = handle.frame
        handle.taken, weights = self._published()
        since = int(self._board.clock_slots[0]) + handle.frame
        seeds = session_seeds(task.root_seed, task.trial, task.session + actor, since)
        others = self._frames_of_others(handle)
        handle.beginning = handle.ray_actor.begin.remote(task, seeds, handle.frame, others, weights)
        self._board.write(1 + actor, phase=Phase.STARTING)

    def _look_at(self, handle: ActorHandle) -> None:
        """Processes its completed calls. Raises RayError if it is lost."""
        if handle.beginning is not None and _is_here(handle.beginning):
            ray.get(handle.beginning)
            handle.beginning = None
            self._board.write(1 + handle.actor, phase=Phase.READY)
        if handle.asking is not None and _is_here(handle.asking):
            self._note_frame(handle, *ray.get([handle.asking]))
            handle.asking = None
        if handle.may_play and handle.asking is None:
            handle.asking = _beside(handle.ray_actor.frame).remote()

    def _sign(self, actor: int) -> tuple[int, bool, int] | None:
        """Values that change while an actor makes progress; None if none is due."""
        handle = self._handles[actor]
        acts = bool(handle.plays) and not _is_here(handle.plays[-1][1])
        if handle.beginning is None and not acts:
            return None
        return handle.restarts, handle.may_play, handle.frame

    def _note_frame(self, handle: ActorHandle, frame: int) -> None:
        if frame > handle.frame:
            handle.frame = frame
            self._board.clock_slots[1 + handle.actor] = frame

    def _frames_of_others(self, handle: ActorHandle) -> int:
        return sum(each.frame for each in self._handles) - handle.frame

    def _published(self) -> tuple[int, Any]:
        """The number of the newest publication, and its weights for a remote call; put into the
        object store at most once."""
        count = self.weights.count
        if self._newest[0] != count:
            weights = self.weights.newest()
            is_small = weights.vector.nbytes + weights.statistics.nbytes < INLINE_BYTES
            self._newest = count, weights if is_small else ray.put(weights)
        return self._newest

    def _send_weights(self) -> None:
        """Sends the newest weights to actors that have received the previous ones."""
        for handle in self._handles:
            if not handle.may_play or handle.taken == self.weights.count:
                continue
            if handle.taking is None or _is_here(handle.taking):
                handle.taken, weights = self._published()
                handle.taking = _beside(handle.ray_actor.take).remote(weights)

    def _request(self, handle: ActorHandle) -> None:
        """Requests one more unroll if the actor has a free slot and the budget is not spent."""
        is_full = handle.held + len(handle.plays) >= self.num_slots
        if not handle.may_play or is_full or self._wanted >= self._max_unrolls:
            return
        request = handle.ray_actor.play.remote(self._frames_of_others(handle))
        handle.plays.append((self._num_requests, request))
        self._num_requests += 1
        self._wanted += 1
        self._board.write(1 + handle.actor, phase=Phase.RUNNING)

    def _lose(self, handle: ActorHandle, error: RayError | str) -> None:
        """Drops a lost actor with its pending unrolls, and replaces it if restarts are left.

        An actor that failed by itself before its first step is not replaced: the next would fail
        too.
        """
        actor = handle.actor
        self._end(handle)
        self._wanted -= len(handle.plays)
        why = error if isinstance(error, str) else _why(error)
        is_hopeless = isinstance(error, RayTaskError) and handle.frame == handle.began_at
        restarts = handle.restarts + 1
        fresh = ActorHandle(actor, handle.frame, restarts, handle.held)
        if is_hopeless or restarts > self._meta.max_restart:
            fresh.is_lost = True
            self._board.write(1 + actor, phase=Phase.FAILED)
            self._losses.send((actor, why))
            logger.error("actor %d is lost: %s", actor, why)
        else:
            self._board.write(1 + actor, phase=Phase.WAITING, restarts=restarts)
            self._look_asap = True
            logger.warning("actor %d is replaced: %s", actor, why)
        self._handles[actor] = fresh

    def _end(self, handle: ActorHandle) -> None:
        if handle.ray_actor is not None:
            ray.kill(handle.ray_actor)
            handle.ray_actor = None

    @property
    @override
    def is_exhausted(self) -> bool:
        """Whether all actors are lost for good, or all unrolls of the budget were received."""
        left = [handle for handle in self._handles if not handle.is_lost]
        is_spent = self._wanted >= self._max_unrolls and not any(handle.plays for handle in left)
        return is_spent or not left

    @property
    @override
    def waited(self) -> tuple[float, float]:
        return self._waited, self._acted

    @property
    @override
    def cpu_t(self) -> float:
        return self._cpu_t

    @override
    def end(self) -> None:
        """Kills the actors; their running unrolls are dropped."""
        phase = Phase.STOPPED if self._board.stop_requested else Phase.DONE
        for handle in self._handles:
            self._end(handle)
            if not handle.is_lost:
                self._board.write(1 + handle.actor, phase=phase)

    @override
    def close(self) -> None:
        """Kills the remaining actors and disconnects from the cluster."""
        for handle in self._handles:
            self._end(handle)
        self._closing.close()


def _is_here(ref: Ref) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def _beside(method: Any) -> Any:
    """A call that runs while the actor plays."""
    return method.options(concurrency_group=BESIDE)


def _why(error: RayError) -> str:
    """The reason to report: for the lab's own errors only the message."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, LabError):
        return str(cause)
    if isinstance(error, RayTaskError):
        return COLOURS.sub("", str(error)).strip()
    return why_lost(error)
