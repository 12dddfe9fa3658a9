"""The Trial parent's part in actor–learner training: the queue, and replacing
actors."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from slm_lab.parallel.actor_learner import strategy
from slm_lab.parallel.actor_learner.actor import run_actor
from slm_lab.parallel.actor_learner.queue import UnrollQueue
from slm_lab.parallel.actor_learner.unroll import UnrollWriter
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hang_detector import PATIENCE_SECONDS
from slm_lab.parallel.processes import Processes, run_sessions
from slm_lab.parallel.supervisor import (
    CLUSTER_STOP_SECONDS,
    Supervisor,
    ended_with,
    replacement,
)
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.virtual.simulation import Simulation, real_pace
from slm_lab.session.build import prototype
from slm_lab.session.status_board import END, PAUSED, Phase, StatusBoard
from slm_lab.storage.result import Ending, SessionResult

LEAVE_SECONDS = 10.0
"""How long an actor may take to end its step once the learner has ended."""


def train_from_actors(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains one agent from actors, each in its own process; dead ones are replaced.
    The first task is the learner's. Raises LabError without room in shared memory or a
    required GPU."""
    learner_task, *actors = tasks
    if learner_task.spec.meta.actor_learner.serial:
        return run_sessions(
            [_learner(learner_task, partial(strategy.serial_source, learner_task))],
            status_board,
            on_tick,
        )
    simulation = Simulation.of(learner_task.spec.meta, learner_task.root_seed)
    if simulation is not None:
        simulated = replace(
            learner_task,
            spec=learner_task.spec.as_learned(),
            make_strategy=partial(
                strategy.simulated_strategy, learner_task, simulation
            ),
        )
        return run_sessions([simulated], status_board, on_tick)
    if learner_task.spec.meta.cluster is not None:
        return _train_on_cluster(tasks, status_board, on_tick)
    own_status_board = status_board.part(learner_task.workers)
    writer = partial(UnrollWriter, horizon=learner_task.spec.unroll_length)
    with prototype(learner_task.spec, learner_task.seeds, writer) as (agent, env):
        queue = UnrollQueue.of(
            learner_task.spec, agent, env, frame=int(own_status_board.clock_slots[0])
        )
    learner = _learner(
        learner_task,
        partial(
            strategy.queue_source,
            learner_task.spec.as_learned(),
            queue,
            learner_task.seeds,
        ),
    )
    program = partial(run_actor, queue)
    supervisor = Supervisor(
        Processes(status_board),
        [learner, *(replace(actor, program=program, resume=False) for actor in actors)],
        status_board,
        restart=replacement,
        max_restart=learner_task.spec.meta.max_restart,
        vital=(learner_task.session,),
    )
    actor_sessions = learner_task.workers[1:]
    supervisor.watch(actor_sessions, partial(actor_due, own_status_board, queue))
    supervisor.watch([learner_task.session], partial(evaluation_due, own_status_board))
    why = f"its step still runs {LEAVE_SECONDS:g} s after the learner's end"
    supervisor.watch(
        actor_sessions, partial(late_due, own_status_board), why, LEAVE_SECONDS
    )
    why = f"it has not learned for {PATIENCE_SECONDS:g} s, and actors wait for it"
    supervisor.watch(
        [learner_task.session],
        partial(learner_due, own_status_board, queue),
        why,
        PATIENCE_SECONDS,
    )
    return supervisor.run(on_tick)


def _learner(task: SessionTask, make_source: strategy.MakeSource) -> SessionTask:
    spec = task.spec.as_learned()
    return replace(
        task,
        spec=spec,
        make_strategy=partial(
            strategy.LearnerStrategy, spec, make_source, pace=real_pace(spec.meta)
        ),
    )


def _train_on_cluster(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Runs the learner in a process here and its actors on the nodes of the cluster."""
    learner_task, *actors = tasks
    from_learner, to_parent = CONTEXT.Pipe(duplex=False)
    lost: dict[int, SessionResult] = {}
    learner = _learner(
        learner_task, partial(strategy.ray_source, learner_task, to_parent)
    )

    def tick() -> None:
        while from_learner.poll():
            actor: SessionResult = from_learner.recv()
            session = actors[actor.session].session
            lost[session] = replace(actor, session=session)
            status_board.reasons[session] = str(actor.error)
        on_tick()

    with from_learner, to_parent:
        supervisor = Supervisor(
            Processes(status_board),
            [learner],
            status_board,
            stop_seconds=CLUSTER_STOP_SECONDS,
        )
        (result,) = supervisor.run(tick)
        tick()
    sessions = [task.session for task in actors]
    ends = (
        lost.get(session) or _ended_with_learner(session, result, status_board)
        for session in sessions
    )
    return [result, *ends]


def _ended_with_learner(
    session: int, learner: SessionResult, status_board: StatusBoard
) -> SessionResult:
    shown = status_board.read(session)
    result = SessionResult(
        session, learner.ending, shown.frame, restarts=shown.restarts
    )
    if learner.ending is not Ending.FAILED:
        return result
    status_board.write(session, phase=Phase.FAILED)
    return replace(result, error=ended_with(learner.session), lost_others=True)


def actor_due(status_board: StatusBoard, queue: UnrollQueue, actor: int) -> bool | None:
    """Progress is due from an actor that starts, or that acts and has a free slot."""
    ring = queue.rings[actor]
    phase = status_board.phase(1 + actor)
    has_room = ring["handed"] - ring["returned"] < queue.slots.shape[1]
    acts = phase is Phase.RUNNING and has_room
    if acts or phase is Phase.STARTING:
        return True
    return None


def evaluation_due(status_board: StatusBoard, learner: int) -> bool | None:
    """Progress is due from a learner that steps environments, while it pauses for an
    evaluation or a video."""
    pauses = status_board.at_barrier[learner] == PAUSED
    if pauses and status_board.phase(learner) is Phase.RUNNING:
        return True
    return None


def late_due(status_board: StatusBoard, actor: int) -> bool | None:
    """Progress is due from an actor that still acts after the learner's end. After a
    stop the `Supervisor` ends actors, which is no failure."""
    is_late = status_board.at_barrier[0] == END and not status_board.stop_requested
    if is_late and status_board.phase(1 + actor) is Phase.RUNNING:
        return True
    return None


def learner_due(
    status_board: StatusBoard, queue: UnrollQueue, learner: int
) -> int | None:
    """Progress is due from the learner while an actor waits for it; returned unrolls
    count. While the learner pauses for an evaluation, none is due."""
    rings = queue.rings
    actor_waits = (rings["handed"] - rings["returned"] == queue.slots.shape[1]).any()
    pauses = status_board.at_barrier[learner] == PAUSED
    if not actor_waits or pauses or status_board.phase(learner) is not Phase.RUNNING:
        return None
    return int(rings["returned"].sum())
