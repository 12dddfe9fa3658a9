"""The Trial parent's part in actor–learner training: the queue, and replacing actors."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import final

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.parallel.actor_learner.program import ActorProgram
from slm_lab.parallel.actor_learner.queue import HANG_SECONDS, PATIENCE_SECONDS, UnrollQueue
from slm_lab.parallel.actor_learner.strategy import InProcesses, OnCluster, Serially
from slm_lab.parallel.actor_learner.unroll import UnrollWriter
from slm_lab.parallel.hang_detector import HangDetector
from slm_lab.parallel.processes import SPAWN, Processes
from slm_lab.parallel.prototype import prototype
from slm_lab.parallel.task import SessionTask
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import as_learned, unroll_length
from slm_lab.storage.result import Ending, SessionResult

LEAVE_SECONDS = 10.0
"""How long an actor may take to end its step once the learner has ended."""
CLUSTER_STOP_SECONDS = 15.0
"""How long a learner with actors on a cluster may take to end when the user waits."""


def train_from_actors(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains one agent from actors, each in its own process; dead actors are replaced.

    The first task is the learner's. Raises LabError if shared memory has no room for the queue, or
    if a required GPU is missing.
    """
    one = tasks[0]
    if one.spec.meta.actor_learner.serial:
        return _in_one_process(one, board, on_tick)
    own_board = board.part(one.workers)
    if one.spec.meta.cluster is not None:
        return _on_cluster(tasks, board, on_tick)
    queue = _queue(one.spec, one, frame=int(own_board.clock_slots[0]))
    spec = as_learned(one.spec)
    seeds = session_seeds(one.root_seed, one.trial, one.session)
    learner = replace(one, spec=spec, common=InProcesses(spec, queue, seeds))
    actors = [replace(task, program=ActorProgram(queue), resume=False) for task in tasks[1:]]
    meta = one.spec.meta
    everyone, vital = [learner, *actors], (one.session,)
    processes = Processes(everyone, board, len(tasks), meta.max_restart, vital=vital)
    watch = Watch(own_board, queue)

    def tick() -> None:
        alive = [session in processes.running for session in one.workers[1:]]
        for actor, why in watch.tick(alive):
            processes.end_hung(one.workers[1 + actor], why)
        if watch.learner_hangs() and not processes.waits_for_disk(one.session):
            why = f"it has not learned for {PATIENCE_SECONDS:g} s, and actors wait for it"
            processes.end_hung(one.session, why)
        on_tick()

    return processes.run(tick)


def _in_one_process(
    task: SessionTask, board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    spec = as_learned(task.spec)
    common = Serially(spec, task.root_seed, task.trial, task.session)
    return Processes([replace(task, spec=spec, common=common)], board, 1).run(on_tick)


def _on_cluster(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Runs the learner in a process here and its actors on the nodes of the cluster."""
    one, *actors = tasks
    from_learner, to_parent = SPAWN.Pipe(duplex=False)
    losses: dict[int, str] = {}
    common = OnCluster(one, to_parent)
    learner = replace(one, spec=as_learned(one.spec), common=common)

    def tick() -> None:
        while from_learner.poll():
            actor, why = from_learner.recv()
            session = one.workers[1 + actor]
            losses[session] = board.reasons[session] = why
        on_tick()

    with from_learner, to_parent:
        processes = Processes([learner], board, 1, stop_seconds=CLUSTER_STOP_SECONDS)
        (result,) = processes.run(tick)
        tick()
    return [result, *(_of_actor(task.session, result, losses, board) for task in actors)]


def _of_actor(
    session: int, learner: SessionResult, losses: Mapping[int, str], board: StatusBoard
) -> SessionResult:
    shown = board.read(session)
    result = SessionResult(session, learner.ending, shown.frame, restarts=shown.restarts)
    if session in losses:
        return replace(result, ending=Ending.FAILED, error=losses[session])
    if learner.ending is Ending.FAILED:
        board.write(session, phase=Phase.FAILED)
        why = f"ended because Session {learner.session} ended, which it cannot train without"
        return replace(result, error=why, lost_others=True)
    return result


def _queue(spec: Spec, task: SessionTask, frame: int) -> UnrollQueue:
    def writer(layout: MemoryLayout) -> UnrollWriter:
        return UnrollWriter(replace(layout, horizon=unroll_length(spec)))

    seeds = session_seeds(task.root_seed, task.trial, task.session)
    with prototype(spec, seeds, writer) as (agent, env):
        return UnrollQueue.of(spec, agent, env, frame)


@final
class Watch:
    """Detects actors that hang although they have a free slot, and a learner that hangs although
    actors wait for it; marks lost actors."""

    def __init__(self, board: StatusBoard, queue: UnrollQueue) -> None:
        self._board = board
        _, self._handed, self._returned = queue.counts.numpy()
        self._flags, self._lost = queue.flags.numpy(), queue.lost.numpy()
        self._num_slots = queue.slots.shape[1]
        actors = range(len(self._lost))
        self._hang_detector = HangDetector(len(actors))
        self._learner_hang_detector = HangDetector(1)
        self._over_since: float | None = None
        self._failed: list[int | None] = [None for _ in actors]
        """Restart counts of actors that had failed and had no process at the last tick."""

    def tick(self, alive: Sequence[bool]) -> list[tuple[int, str]]:
        """The actors that hang, each with the reason. `alive`: whether each has a process.

        Call it a few times a second, each time after replacements have started.
        """
        now, hung = time.monotonic(), []
        if self._flags[0] and self._over_since is None:
            self._over_since = now
        over = 0.0 if self._over_since is None else now - self._over_since
        silent = self._hang_detector.seconds([self._sign(actor) for actor in range(len(alive))])
        for actor, has_process in enumerate(alive):
            self._note_lost(actor, has_process)
            what = "start" if self._phase(actor) is Phase.STARTING else "step"
            if self._is_late(actor, over):
                hung.append(
                    (actor, f"its step still runs {LEAVE_SECONDS:g} s after the learner's end")
                )
            elif silent[actor] > HANG_SECONDS:
                hung.append((actor, f"its {what} has not ended for {HANG_SECONDS:g} s"))
        return hung

    def learner_hangs(self) -> bool:
        """Whether the learner hangs; call it as often as `tick`. A training event may be long, and
        an evaluation, for which the learner pauses, longer."""
        waiting = bool((self._handed - self._returned == self._num_slots).any())
        is_due = waiting and not self._flags[1] and self._board.phase(0) is Phase.RUNNING
        sign = (int(self._board.clock_slots[0]), int(self._returned.sum())) if is_due else None
        return self._learner_hang_detector.seconds([sign])[0] > PATIENCE_SECONDS

    def _is_late(self, actor: int, over: float) -> bool:
        """Whether it still acts long after the learner has ended. After a stop `Processes` decides
        and does not count it as a failure."""
        runs = self._phase(actor) is Phase.RUNNING
        return runs and over > LEAVE_SECONDS and not self._board.stop_requested

    def _phase(self, actor: int) -> Phase:
        return self._board.phase(1 + actor)

    def _sign(self, actor: int) -> tuple[Phase, int, int] | None:
        """Values that change while an actor makes progress; None if it must wait for others."""
        shown = self._board.read(1 + actor)
        has_room = self._handed[actor] - self._returned[actor] < self._num_slots
        if shown.phase is Phase.STARTING or (shown.phase is Phase.RUNNING and has_room):
            return shown.phase, shown.restarts, shown.frame
        return None

    def _note_lost(self, actor: int, has_process: bool) -> None:
        """Marks an actor as lost if it had failed without a process at the last tick and still has
        no replacement."""
        shown = self._board.read(1 + actor)
        failed = shown.restarts if shown.phase is Phase.FAILED and not has_process else None
        if failed is not None and failed == self._failed[actor]:
            self._lost[actor] = 1
        self._failed[actor] = failed
