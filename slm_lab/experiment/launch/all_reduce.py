"""What a Trial's parent does for ranks: lets them meet, and has all begin again if one dies."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from slm_lab.agent.optim.peers import NoPeers
from slm_lab.agent.optim.shared_memory import into_shared_memory
from slm_lab.agent.optim.shared_peers import MeetingPlace, SharedMemoryPeers
from slm_lab.core.errors import LabError
from slm_lab.experiment.all_reduce import AllReduce
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.intact import settle
from slm_lab.experiment.launch.processes import Processes
from slm_lab.experiment.launch.silence import Silence
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.scale import scaled

logger = logging.getLogger(__name__)

HANG_SECONDS = 300.0
"""How long a rank for which others wait may show no sign of life."""
LONGEST_SECONDS = 7 * 24 * 3600.0
"""How long a rank waits at most for another one that does show signs of life. Where all processes
are on one machine, their parent decides who hangs, and they end with it."""


@final
@dataclass(frozen=True)
class OneMachine:
    """Ranks that meet in shared memory."""

    place: MeetingPlace
    progress: Tensor
    """(W,) int64: see `AllReduce`"""

    @classmethod
    def of(cls, size: int) -> "OneMachine":
        """For W = `size` ranks. Raises LabError where shared memory has no room for it."""
        return cls(MeetingPlace.of(size), into_shared_memory(torch.zeros(size, dtype=torch.int64)))

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        alone = len(self.place.arrivals) == 1
        peers = NoPeers() if alone else SharedMemoryPeers(self.place, worker, LONGEST_SECONDS)
        return AllReduce(board, peers, self.progress.numpy())


def train_ranks(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains the ranks of one training, one process each, to the end of the budget.

    Raises LabError where shared memory has no room for them to meet.
    """

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        common, workers = OneMachine.of(len(ranks)), ranks[0].workers
        ranks = [replace(rank, common=common) for rank in ranks]
        processes = Processes(ranks, board, len(ranks), vital=[rank.session for rank in ranks])
        watch = Watch(board.part(workers), common)

        def tick() -> None:
            for rank in watch.tick(lambda rank: processes.waits_for_disk(workers[rank])):
                why = f"it has done nothing for {HANG_SECONDS:g} s, and others wait for it"
                processes.end_hung(workers[rank], why)
            on_tick()

        return processes.run(tick)

    return train_in_step(tasks, board, attempt)


@final
class Watch:
    """Looks for ranks that others wait for, and that do nothing any more.

    Others may wait long for one that evaluates, plays a long episode, or saves on a slow disk; that
    one is seen to get on: it comes to meetings, makes frames or steps of an evaluation, or waits
    for the disk.
    """

    def __init__(self, board: Board, common: OneMachine) -> None:
        self._arrivals, self._progress = common.place.arrivals.numpy(), common.progress.numpy()
        self._frames = board.clock_slots
        self._silence = Silence(len(self._arrivals))

    def tick(self, waits_for_disk: Callable[[int], bool]) -> list[int]:
        """To be called a few times a second; returns the ranks that hang."""
        is_late = self._arrivals < self._arrivals.max()
        signs = [
            self._sign(rank) if late and not waits_for_disk(rank) else None
            for rank, late in enumerate(is_late)
        ]
        silent = self._silence.seconds(signs)
        return [rank for rank, seconds in enumerate(silent) if seconds > HANG_SECONDS]

    def _sign(self, rank: int) -> tuple[int, ...]:
        """What changes as long as a rank gets on."""
        return tuple(int(each[rank]) for each in (self._arrivals, self._progress, self._frames))


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
    restarts, results, why = 0, list[SessionResult](), None
    while True:
        began_at = board.clock_slots.copy()
        try:
            if restarts:
                fell_back = settle([t.run_dir.session(t.trial, t.session) for t in tasks])
                why = "; ".join([str(why), *fell_back])
                tasks = [replace(task, resume=True, begins_again=why) for task in tasks]
            results = attempt([replace(task, spec=scaled(spec)) for task in tasks])
        except LabError as error:
            if not restarts:
                raise
            return [replace(r, error=f"{r.error}\ncannot begin again: {error}") for r in results]
        results = [replace(each, restarts=restarts, restarted_because=why) for each in results]
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


def _is_worth_another_try(failed: Sequence[SessionResult], made_frames: bool) -> bool:
    """Not where the same must happen again, nor where one failed by itself before its first step.

    Which of those that fail at once is the first to be noticed is a matter of chance.
    """
    killed = any(each.was_killed for each in failed)
    return (killed or made_frames) and not any(each.would_repeat for each in failed)
