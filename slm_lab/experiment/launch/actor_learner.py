"""What a Trial's parent does for actors and their learner: lays the pipe, and replaces actors."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import final

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.unroll import UnrollWriter
from slm_lab.experiment.actor_learner import InProcesses, OnCluster, Serially
from slm_lab.experiment.launch.processes import SPAWN, Processes
from slm_lab.experiment.launch.prototype import prototype
from slm_lab.experiment.launch.silence import Silence
from slm_lab.experiment.pipe import HANG_SECONDS, PATIENCE_SECONDS, Pipe
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.seeding import session_seeds
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.unrolls import as_learned, unroll_length

LEAVE_SECONDS = 10.0
"""How long an actor may take to come to the end of its step once the learner has ended."""
CLUSTER_STOP_SECONDS = 15.0
"""How long a learner with actors on a cluster may take to end when the user waits for it."""


def train_from_actors(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains one agent on what actors play, each in its own process; those that die are replaced.

    The first task is the learner's. Raises LabError where shared memory has no room for the pipe,
    or a GPU is required and missing.
    """
    one = tasks[0]
    if one.spec.meta.actor_learner.serial:
        return _in_one_process(one, board, on_tick)
    own_board = board.part(one.workers)
    if one.spec.meta.cluster is not None:
        return _on_cluster(tasks, board, on_tick)
    pipe = _pipe(one.spec, one, frame=int(own_board.clock_slots[0]))
    spec = as_learned(one.spec)
    seeds = session_seeds(one.root_seed, one.trial, one.session)
    learner = replace(one, spec=spec, common=InProcesses(spec, pipe, seeds))
    actors = [replace(task, acts_into=pipe, resume=False) for task in tasks[1:]]
    meta = one.spec.meta
    everyone, vital = [learner, *actors], (one.session,)
    processes = Processes(everyone, board, len(tasks), meta.max_restart, vital=vital)
    watch = Watch(own_board, pipe)

    def tick() -> None:
        alive = [session in processes.running for session in one.workers[1:]]
        for actor, why in watch.tick(alive):
            processes.end_hung(one.workers[1 + actor], why)
        if watch.learner_hangs() and not processes.waits_for_disk(one.session):
            why = f"it has learned nothing for {PATIENCE_SECONDS:g} s, and actors wait for it"
            processes.end_hung(one.session, why)
        on_tick()

    return processes.run(tick)


def _in_one_process(
    task: SessionTask, board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    spec = as_learned(task.spec)
    common = Serially(spec, task.root_seed, task.trial, task.session)
    return Processes([replace(task, spec=spec, common=common)], board, 1).run(on_tick)


def _on_cluster(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """The learner in a process here, which has its actors on the nodes of the cluster."""
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
    session: int, learner: SessionResult, losses: Mapping[int, str], board: Board
) -> SessionResult:
    shown = board.read(session)
    result = SessionResult(session, learner.ending, shown.frame, restarts=shown.restarts)
    if session in losses:
        return replace(result, ending=Ending.FAILED, error=losses[session])
    if learner.ending is Ending.FAILED:
        board.write(session, phase=Phase.FAILED)
        why = f"ended, because Session {learner.session} did, which it cannot train without"
        return replace(result, error=why, lost_others=True)
    return result


def _pipe(spec: Spec, task: SessionTask, frame: int) -> Pipe:
    def writer(layout: MemoryLayout) -> UnrollWriter:
        return UnrollWriter(replace(layout, horizon=unroll_length(spec)))

    seeds = session_seeds(task.root_seed, task.trial, task.session)
    with prototype(spec, seeds, writer) as (agent, env):
        return Pipe.of(spec, agent, env, frame)


@final
class Watch:
    """Looks for actors that do nothing, though they have room and are wanted, and for a learner
    that learns nothing, though they wait for it; and notes those that are lost."""

    def __init__(self, board: Board, pipe: Pipe) -> None:
        self._board = board
        _, self._handed, self._returned = pipe.counts.numpy()
        self._flags, self._lost = pipe.flags.numpy(), pipe.lost.numpy()
        self._num_slots = pipe.slots.shape[1]
        actors = range(len(self._lost))
        self._silence = Silence(len(actors))
        self._learner_silence = Silence(1)
        self._over_since: float | None = None
        self._failed: list[int | None] = [None for _ in actors]
        """Restarts of those that had failed at the last tick, and had no process any more."""

    def tick(self, alive: Sequence[bool]) -> list[tuple[int, str]]:
        """To be called a few times a second, each time after replacements were begun: the actors
        that hang, each with the reason. `alive`: those that have a process."""
        now, hung = time.monotonic(), []
        if self._flags[0] and self._over_since is None:
            self._over_since = now
        over = 0.0 if self._over_since is None else now - self._over_since
        silent = self._silence.seconds([self._stands(actor) for actor in range(len(alive))])
        for actor, has_process in enumerate(alive):
            self._note_lost(actor, has_process)
            what = "start" if self._phase(actor) is Phase.STARTING else "step"
            if self._is_late(actor, over):
                hung.append(
                    (actor, f"its step goes on {LEAVE_SECONDS:g} s after the learner's end")
                )
            elif silent[actor] > HANG_SECONDS:
                hung.append((actor, f"its {what} has not come to an end for {HANG_SECONDS:g} s"))
        return hung

    def learner_hangs(self) -> bool:
        """To be called as often as `tick`. One training event may be long, and an evaluation, in
        which it stands aside, longer."""
        waiting = bool((self._handed - self._returned == self._num_slots).any())
        is_due = waiting and not self._flags[1] and self._board.phase(0) is Phase.RUNNING
        sign = (int(self._board.clock_slots[0]), int(self._returned.sum())) if is_due else None
        return self._learner_silence.seconds([sign])[0] > PATIENCE_SECONDS

    def _is_late(self, actor: int, over: float) -> bool:
        """Whether it still acts long after the learner has ended. After a stop `Processes` decides,
        which does not take it for a failure."""
        runs = self._phase(actor) is Phase.RUNNING
        return runs and over > LEAVE_SECONDS and not self._board.stop_requested

    def _phase(self, actor: int) -> Phase:
        return self._board.phase(1 + actor)

    def _stands(self, actor: int) -> tuple[Phase, int, int] | None:
        """What changes as long as an actor does not hang; None where it has to wait for others."""
        shown = self._board.read(1 + actor)
        has_room = self._handed[actor] - self._returned[actor] < self._num_slots
        if shown.phase is Phase.STARTING or (shown.phase is Phase.RUNNING and has_room):
            return shown.phase, shown.restarts, shown.frame
        return None

    def _note_lost(self, actor: int, has_process: bool) -> None:
        """One that says it has failed may be replaced, when its process has ended: it is lost if
        that was so at the last tick, and no other was begun since."""
        shown = self._board.read(1 + actor)
        failed = shown.restarts if shown.phase is Phase.FAILED and not has_process else None
        if failed is not None and failed == self._failed[actor]:
            self._lost[actor] = 1
        self._failed[actor] = failed
