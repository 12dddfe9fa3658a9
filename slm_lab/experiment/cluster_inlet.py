"""Actors on the nodes of a Ray cluster, as their learner sees them.

Each is a Ray actor, which belongs to the learner's process and ends with it. What it plays lies in
Ray's object store until the learner takes it; one that is lost is replaced wherever there is room.
Nothing here waits long, whatever happens on the nodes: it is looked after whenever the learner asks
for an unroll.
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

from slm_lab.agent.agent import Agent
from slm_lab.agent.memory.unroll import Unroll, unpacked
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.errors import LabError
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.cluster_actor import ClusterActor, Played
from slm_lab.experiment.launch.cluster import connected
from slm_lab.experiment.pipe import HANG_SECONDS, slots_per_actor
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.seeding import session_seeds
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.unrolls import unroll_length

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""Between two looks at the actors."""
NAP_SECONDS = 0.01
"""How long one sleeps where there is nothing to wait for."""
LOOKS_TO_HANG = 4
"""How often at least one must have been seen to do nothing, however seldom the learner looks."""
INLINE_BYTES = 100_000
"""Weights up to here go with the call; Ray would carry larger ones to the same node twice."""
BESIDE = "beside"
"""The group of calls that are answered while an actor plays."""
GROUPS = {BESIDE: 1}
"""With a thread each; what an actor plays is in none, and has one of its own."""

COLOURS = re.compile(r"\x1b\[\d+m")
"""With which Ray marks tracebacks for a terminal."""

Ref: TypeAlias = Any
"""A reference to what a call will give."""


@dataclass
class Seat:
    """One actor, and what it is asked for."""

    frame: int
    """Frames played here, by whoever sat here."""
    restarts: int = 0
    held: int = 0
    """Unrolls that the learner has."""
    is_lost: bool = False
    """For good."""
    handle: Any = None
    """The Ray actor; None where one has to be begun."""
    began_at: int = 0
    """The frame at which it has begun."""
    beginning: Ref = None
    """Until it has made its environments."""
    plays: deque[tuple[int, Ref]] = field(default_factory=deque)
    """Unrolls that it was asked for, in order, each with its number among those of all."""
    taken: int = 0
    """The publication that it was told of last."""
    taking: Ref = None
    """Until it has got that."""
    look: Ref = None
    """Asked how far it is."""
    idle: float = 0.0
    """Seconds for which it has made no step, though it had to."""

    @property
    def may_play(self) -> bool:
        """Whether there is one that can act."""
        return self.handle is not None and self.beginning is None


@final
class ClusterInlet:
    """See `Inlet`."""

    def __init__(
        self, task: SessionTask, board: Board, agent: Agent, env: VectorEnv, losses: Connection
    ) -> None:
        spec = task.spec
        self.num_actors = spec.meta.max_session
        self.weights = Publication.of(agent.learner.flats, len(env.statistics))
        self._task, self._board, self._losses = task, board, losses
        self._meta = spec.meta
        self.num_slots = slots_per_actor(spec.meta)
        """Unrolls of an actor that may be under way, or with the learner."""
        clock = board.clock_slots
        self._seats = [Seat(frame=int(clock[1 + actor])) for actor in range(self.num_actors)]
        frames = unroll_length(spec) * spec.env.num_envs
        self._max_unrolls = -(-max(spec.env.max_frame - int(clock[0]), 0) // frames)
        self._wanted = 0
        """Unrolls that have come, or were asked for and may still come."""
        self._asked = 0
        self._newest: tuple[int, Any] = (0, None)
        """A publication by its number, and what Ray is given for it."""
        self._waited = self._acted = self._cpu_t = 0.0
        self._looked_at = time.monotonic()
        self._look_asap = True
        self._closing = ExitStack()
        self._closing.enter_context(connected(str(spec.meta.cluster)))
        try:
            self._check_size()
        except BaseException:
            self.close()
            raise

    def _check_size(self) -> None:
        there = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
        needed = self._meta.threads * self.num_actors
        if there < needed:
            raise LabError(
                f"{self.num_actors} actors need {needed} CPU of the Ray cluster, which has "
                f"{there:g}; add nodes, or lower max_session"
            )

    def begin(self) -> None:
        """Actors begin their episodes by themselves."""

    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The unroll that was asked for first of those that are here, with the number of its actor;
        None where none comes within that time."""
        self.look()
        heads = [(*seat.plays[0], actor) for actor, seat in enumerate(self._seats) if seat.plays]
        actors = {ref: actor for _, ref, actor in sorted(heads, key=lambda head: head[0])}
        if not actors:
            time.sleep(min(seconds, NAP_SECONDS))
            return None
        ready, _ = ray.wait(list(actors), timeout=seconds)
        if not ready:
            return None
        actor = actors[ready[0]]
        try:
            played: Played = ray.get(ready[0])
        except RayError as error:
            self._lose(actor, error)
            return None
        seat = self._seats[actor]
        seat.plays.popleft()
        seat.held += 1
        self._note_frame(actor, played.frame)
        self._waited += played.waited
        self._acted += played.acted
        self._cpu_t += played.cpu_t
        return actor, unpacked(played.arrays)

    def give_back(self, actor: int) -> None:
        """The learner has no use any more for one of the actor's unrolls: it may play another."""
        self._seats[actor].held -= 1
        self._tell()
        self._ask(actor)

    def look(self) -> None:
        """Begins actors, replaces those that are lost, and asks for unrolls. Cheap: it may be
        called at any time."""
        if self.weights.count == 0 or self._board.stop_requested:
            return
        self._tell()
        now = time.monotonic()
        since = now - self._looked_at
        if since < LOOK_SECONDS and not self._look_asap:
            return
        self._looked_at, self._look_asap = now, False
        for actor, seat in enumerate(self._seats):
            if seat.is_lost:
                continue
            if seat.handle is None:
                self._start(actor)
                continue
            try:
                self._look_at(actor, since)
            except RayError as error:
                self._lose(actor, error)
        for _ in range(self.num_slots):
            for actor in range(self.num_actors):
                self._ask(actor)

    def _start(self, actor: int) -> None:
        seat, task = self._seats[actor], self._task
        options: dict[str, Any] = {"num_cpus": task.spec.meta.threads, "concurrency_groups": GROUPS}
        seat.handle = ray.remote(scheduling_strategy="SPREAD", **options)(ClusterActor).remote()
        seat.began_at = seat.frame
        seat.taken, weights = self._published()
        since = int(self._board.clock_slots[0]) + seat.frame
        seeds = session_seeds(task.root_seed, task.trial, task.session + actor, since)
        others = self._frames_but(actor)
        seat.beginning = seat.handle.begin.remote(task, seeds, seat.frame, others, weights)
        self._board.write(1 + actor, phase=Phase.STARTING)

    def _look_at(self, actor: int, since: float) -> None:
        """Takes in what it has answered. Raises RayError where it is lost."""
        seat = self._seats[actor]
        if seat.beginning is not None and _is_here(seat.beginning):
            ray.get(seat.beginning)
            seat.beginning, seat.idle = None, 0.0
            self._board.write(1 + actor, phase=Phase.READY)
        if seat.look is not None and _is_here(seat.look):
            self._note_frame(actor, *ray.get([seat.look]))
            seat.look = None
        if seat.beginning is not None or (seat.plays and not _is_here(seat.plays[-1][1])):
            seat.idle += min(since, HANG_SECONDS / LOOKS_TO_HANG)
        if seat.idle > HANG_SECONDS:
            what = "step" if seat.beginning is None else "start"
            self._lose(actor, f"its {what} has not come to an end for {HANG_SECONDS:g} s")
        elif seat.may_play and seat.look is None:
            seat.look = _beside(seat.handle.frame).remote()

    def _note_frame(self, actor: int, frame: int) -> None:
        seat = self._seats[actor]
        if frame > seat.frame:
            seat.frame, seat.idle = frame, 0.0
            self._board.clock_slots[1 + actor] = frame

    def _frames_but(self, actor: int) -> int:
        return sum(seat.frame for seat in self._seats) - self._seats[actor].frame

    def _published(self) -> tuple[int, Any]:
        """The newest weights, on their way to everybody once."""
        count = self.weights.count
        if self._newest[0] != count:
            weights = self.weights.newest()
            is_small = weights.vector.nbytes + weights.statistics.nbytes < INLINE_BYTES
            self._newest = count, weights if is_small else ray.put(weights)
        return self._newest

    def _tell(self) -> None:
        """Has actors take the newest weights; one that has not got the last ones yet is told
        later."""
        for seat in self._seats:
            if not seat.may_play or seat.taken == self.weights.count:
                continue
            if seat.taking is None or _is_here(seat.taking):
                seat.taken, weights = self._published()
                seat.taking = _beside(seat.handle.take).remote(weights)

    def _ask(self, actor: int) -> None:
        """For one more unroll, where there is room for it and the budget is not spent."""
        seat = self._seats[actor]
        is_full = seat.held + len(seat.plays) >= self.num_slots
        if not seat.may_play or is_full or self._wanted >= self._max_unrolls:
            return
        seat.plays.append((self._asked, seat.handle.play.remote(self._frames_but(actor))))
        self._asked += 1
        self._wanted += 1
        self._board.write(1 + actor, phase=Phase.RUNNING)

    def _lose(self, actor: int, error: RayError | str) -> None:
        """It is gone, with what it was asked for; another takes its place, if one may.

        Not that of one that failed by itself before its first step: the next would fail as well.
        """
        seat = self._seats[actor]
        self._end(seat)
        self._wanted -= len(seat.plays)
        why = error if isinstance(error, str) else _why(error)
        is_hopeless = isinstance(error, RayTaskError) and seat.frame == seat.began_at
        restarts = seat.restarts + 1
        fresh = Seat(frame=seat.frame, restarts=restarts, held=seat.held)
        if is_hopeless or restarts > self._meta.max_restart:
            fresh.is_lost = True
            self._board.write(1 + actor, phase=Phase.FAILED)
            self._losses.send((actor, why))
            logger.error("actor %d is lost: %s", actor, why)
        else:
            self._board.write(1 + actor, phase=Phase.WAITING, restarts=restarts)
            self._look_asap = True
            logger.warning("actor %d is replaced: %s", actor, why)
        self._seats[actor] = fresh

    def _end(self, seat: Seat) -> None:
        if seat.handle is not None:
            ray.kill(seat.handle)
            seat.handle = None

    @property
    def nothing_comes(self) -> bool:
        """Whether all actors are lost for good, or the budget is spent and all was received."""
        left = [seat for seat in self._seats if not seat.is_lost]
        is_spent = self._wanted >= self._max_unrolls and not any(seat.plays for seat in left)
        return is_spent or not left

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that all actors together have waited to be asked, and acted."""
        return self._waited, self._acted

    @property
    def cpu_t(self) -> float:
        """CPU seconds of the actors' processes, for what they have handed over."""
        return self._cpu_t

    def end(self) -> None:
        """Nothing is to be saved of what they play now: their processes end."""
        phase = Phase.STOPPED if self._board.stop_requested else Phase.DONE
        for actor, seat in enumerate(self._seats):
            self._end(seat)
            if not seat.is_lost:
                self._board.write(1 + actor, phase=phase)

    def stand_aside(self, aside: bool) -> None:
        """Who is not looked at does not hang: see `look`."""

    def state_dict(self) -> StateDict:
        """Nothing: who resumes a run has other actors, who begin anew."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """See `state_dict`."""

    def close(self) -> None:
        """Ends what is left, and leaves the cluster."""
        for seat in self._seats:
            self._end(seat)
        self._closing.close()


def _is_here(ref: Ref) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def _beside(method: Any) -> Any:
    """A call that is answered while another plays."""
    return method.options(concurrency_group=BESIDE)


def _why(error: RayError) -> str:
    """What the user can do something with: for the lab's own errors the message is enough."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, LabError):
        return str(cause)
    if isinstance(error, RayTaskError):
        return COLOURS.sub("", str(error)).strip()
    return f"its node or its process was lost: {str(error).strip().splitlines()[0]}"
