"""What a Trial's parent does for ranks: lets them meet, and has all begin again if one dies."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from slm_lab.agent.optim.peers import NoPeers
from slm_lab.agent.optim.shared_peers import MeetingPlace, SharedMemoryPeers
from slm_lab.core.errors import CheckpointError, LabError
from slm_lab.experiment.all_reduce import AllReduce
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.launch.processes import Processes
from slm_lab.experiment.manifest import pending_path, read_manifest
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.run_dir import SessionPaths
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.scale import scaled

logger = logging.getLogger(__name__)

HANG_SECONDS = 300.0
"""How long a rank waits at most for the others at a meeting."""
STOP_SECONDS = 5.0
"""How long a rank may take to come to the end of its step when the user waits for it."""


@final
@dataclass(frozen=True)
class OneMachine:
    """Ranks that meet in shared memory."""

    place: MeetingPlace
    seconds: float
    """That bound every wait."""

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        alone = len(self.place.arrivals) == 1
        peers = NoPeers() if alone else SharedMemoryPeers(self.place, worker, self.seconds)
        return AllReduce(board, peers)


def train_ranks(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains the ranks of one training, one process each, to the end of the budget.

    Raises LabError where shared memory has no room for them to meet.
    """

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        place = OneMachine(MeetingPlace.of(len(ranks)), HANG_SECONDS)
        ranks = [replace(rank, common=place) for rank in ranks]
        limits, vital = (len(ranks), 0, STOP_SECONDS), [rank.session for rank in ranks]
        return Processes(ranks, board, *limits, vital=vital).run(on_tick)

    return train_in_step(tasks, board, attempt)


def train_in_step(
    tasks: Sequence[SessionTask],
    board: Board,
    attempt: Callable[[Sequence[SessionTask]], list[SessionResult]],
) -> list[SessionResult]:
    """Has `attempt` train ranks to the end of the budget, wherever it does so.

    Where one of them dies, the others end at once, and all begin anew from the last checkpoint, up
    to `meta.max_restart` times.
    """
    spec = tasks[0].spec
    restarts, results = 0, list[SessionResult]()
    while True:
        settle([task.run_dir.session(task.trial, task.session) for task in tasks])
        began_at = board.clock_slots.copy()
        try:
            results = attempt([replace(task, spec=scaled(spec)) for task in tasks])
        except LabError as error:
            if not restarts:
                raise
            return [replace(r, error=f"{r.error}\ncannot begin again: {error}") for r in results]
        results = [replace(each, restarts=restarts) for each in results]
        failed = [each for each in results if each.ending is Ending.FAILED and not each.lost_others]
        if not failed or restarts == spec.meta.max_restart or board.stop_requested:
            return results
        made_frames = any(each.frame > began_at[each.session] for each in failed)
        if not _is_worth_another_try(failed, made_frames):
            return results
        restarts += 1
        for task in tasks:
            board.write(task.session, phase=Phase.WAITING, restarts=restarts)
            board.clock_slots[task.session] = board.arrived[task.session] = 0
        reason = str(failed[0].error).splitlines()[-1]
        why = f"rank {tasks[0].workers.index(failed[0].session)} has ended: {reason}"
        tasks = [replace(task, resume=True, begins_again=why) for task in tasks]


def _is_worth_another_try(failed: Sequence[SessionResult], made_frames: bool) -> bool:
    """Not where the same must happen again, nor where one failed by itself before its first step.

    Which of those that fail at once is the first to be noticed is a matter of chance.
    """
    killed = any(each.was_killed for each in failed)
    return (killed or made_frames) and not any(each.would_repeat for each in failed)


def settle(ranks: Sequence[SessionPaths]) -> None:
    """Has the newest checkpoint be one of all ranks, after they were ended at any moment.

    A checkpoint is whole on all disks before it becomes the newest of any rank. So where it is that
    of one, the others have it, and need only be told. Raises CheckpointError where that is not so.
    """
    saved = [read_manifest(paths.manifest) for paths in ranks]
    newest = max((each.serial for each in saved if each is not None), default=0)
    for paths, manifest in zip(ranks, saved, strict=True):
        if newest and (manifest is None or manifest.serial < newest):
            pending = pending_path(paths.manifest)
            told = read_manifest(pending)
            if told is None or told.serial != newest:
                raise CheckpointError(
                    f"{paths.manifest} is not of the same checkpoint as those of the other ranks: "
                    "files of the run were removed or replaced"
                )
            os.replace(pending, paths.manifest)
