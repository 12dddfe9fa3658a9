"""The Trial parent's part in rank training: shared buffers, hang detection, restarts of
all."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from slm_lab.agent.optim.process_group import ProcessGroup, SoloGroup
from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary
from slm_lab.parallel.all_reduce.process_groups import (
    GroupBuffers,
    SharedMemoryGroup,
    VirtualGroup,
)
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy, RankStrategy
from slm_lab.parallel.processes import Processes
from slm_lab.parallel.supervisor import Supervisor, ended_with
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.virtual.simulation import Simulation, real_pace
from slm_lab.parallel.wait import LONGEST_SECONDS
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.session.strategy import Strategy
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.storage.intact import settle
from slm_lab.storage.result import Ending, SessionResult

MakeStrategy: TypeAlias = Callable[[StatusBoard, ProcessGroup], RankStrategy]
"""Makes a rank's strategy from the status board and its process group."""


def strategy_in(
    buffers: GroupBuffers,
    kind: MakeStrategy,
    simulation: Simulation | None,
    meta: MetaSpec,
    status_board: StatusBoard,
    rank: int,
) -> Strategy:
    """The strategy of a rank that communicates through shared memory."""
    group: ProcessGroup = SoloGroup()
    if len(buffers.arrivals) > 1:
        group = SharedMemoryGroup(buffers, rank, LONGEST_SECONDS)
    pace = real_pace(meta)
    if simulation is not None:
        pace = virtual = simulation.pace_alone(rank)
        group = VirtualGroup(group, virtual)
    strategy = kind(status_board, group)
    strategy.pace = pace
    return strategy


def train_ranks(
    tasks: Sequence[SessionTask],
    status_board: StatusBoard,
    on_tick: Callable[[], None],
    kind: MakeStrategy = AllReduceStrategy,
) -> list[SessionResult]:
    """Trains the ranks of one training, one process each, to the end of the budget.
    `kind` makes the strategy of each rank; it is sent to their processes, so it must
    pickle. Raises LabError if shared memory has no room."""

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        buffers = GroupBuffers.of(len(ranks))
        workers = ranks[0].workers
        meta = ranks[0].spec.meta
        simulation = Simulation.of(meta, ranks[0].root_seed)
        make_strategy = partial(strategy_in, buffers, kind, simulation, meta)
        ranks = [replace(rank, make_strategy=make_strategy) for rank in ranks]
        supervisor = Supervisor(
            Processes(status_board),
            ranks,
            status_board,
            vital=[r.session for r in ranks],
        )
        supervisor.watch(
            workers, partial(rank_due, status_board.part(workers), buffers)
        )
        return supervisor.run(on_tick)

    return train_in_step(tasks, status_board, attempt)


def rank_due(status_board: StatusBoard, buffers: GroupBuffers, rank: int) -> int | None:
    """Progress is due from a rank that starts or runs, and does not wait for another;
    entering an exchange counts."""
    arrivals = buffers.arrivals.numpy()
    waits = arrivals.min() < arrivals[rank] == arrivals.max()
    acts = status_board.phase(rank) in (Phase.STARTING, Phase.RUNNING)
    if acts and not waits:
        return int(arrivals[rank])
    return None


def train_in_step(
    tasks: Sequence[SessionTask],
    status_board: StatusBoard,
    attempt: Callable[[Sequence[SessionTask]], list[SessionResult]],
) -> list[SessionResult]:
    """Has `attempt` train ranks to the end of the budget, on one machine or a cluster.
    If one rank dies, the others end at once. All restart from the last checkpoint, up
    to `meta.max_restart` times. They do not if the failure would repeat, or if a rank
    failed by itself before its first step."""
    spec = tasks[0].spec
    restarts = 0
    results = list[SessionResult]()
    why = None
    while True:
        began_at = status_board.clock_slots.copy()
        try:
            if restarts:
                fell_back = settle([task.paths for task in tasks])
                why = "; ".join([str(why), *fell_back])
                tasks = [
                    replace(task, resume=True, restarted_because=why) for task in tasks
                ]
            results = attempt([replace(task, spec=scaled(spec)) for task in tasks])
        except LabError as error:
            if not restarts:
                raise
            return [
                replace(r, error=f"{r.error}\ncannot restart: {error}") for r in results
            ]
        results = [
            replace(result, restarts=restarts, restarted_because=why)
            for result in results
        ]
        failed = [
            result
            for result in results
            if result.ending is Ending.FAILED and not result.lost_others
        ]
        if not failed or status_board.stop_requested:
            return results
        # One that was killed is the cause; others may have lost it before it was seen.
        cause = next((result for result in failed if result.was_killed), failed[0])
        results = [_end_with(cause.session, result, status_board) for result in results]
        if restarts == spec.meta.max_restart:
            return results
        # All failures count: if several ranks fail at once, any may be noticed first.
        made_frames = any(result.frame > began_at[result.session] for result in failed)
        failed_at_once = not (
            made_frames or any(result.was_killed for result in failed)
        )
        if failed_at_once or any(result.would_repeat for result in failed):
            return results
        restarts += 1
        for task in tasks:
            status_board.write(task.session, phase=Phase.WAITING, restarts=restarts)
            status_board.clock_slots[task.session] = status_board.at_barrier[
                task.session
            ] = 0
        reason = error_summary(cause.error)
        why = f"rank {tasks[0].workers.index(cause.session)} has ended: {reason}"


def _end_with(
    failed: int, result: SessionResult, status_board: StatusBoard
) -> SessionResult:
    """The result of a rank after another has failed. A failing rank asks all to stop,
    so that they save the same frame. So some may have stopped before they are ended."""
    if result.ending is not Ending.INTERRUPTED:
        return result
    why = ended_with(failed)
    status_board.write(result.session, phase=Phase.FAILED)
    status_board.reasons[result.session] = why
    return replace(result, ending=Ending.FAILED, error=why, lost_others=True)
