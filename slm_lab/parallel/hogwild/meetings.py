"""Checkpoints that Hogwild! workers make together in virtual time.

Workers meet at virtual times that all know. Each stops at its first step boundary after
such a time. All of them then have what the others know. A checkpoint is made there, if
one is due. So it changes nothing in what they learn, and a resumed training repeats an
uninterrupted one."""

from collections.abc import Callable
from typing import ClassVar, final

from typing_extensions import override

from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict
from slm_lab.parallel.hogwild.pauses import WorkerPauses
from slm_lab.parallel.virtual.turns import Turns
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import JointCheckpoint, StartBarrier

BETWEEN_MEETINGS = 5_000_000_000
"""Virtual nanoseconds between two meetings, summed over all workers. They are about the
real nanoseconds, because workers take turns."""
STEPS_BETWEEN_MEETINGS = 50
"""The least optimizer steps of the slowest worker between two meetings. At a meeting
workers read newer weights than they would without it, so meetings must be rare."""


@final
class WorkerMeetings(SavedFields, StartBarrier, JointCheckpoint):
    """The meetings of one of W workers, which has taken `steps()` optimizer steps.
    `merge` adds what this worker knows to the shared state, `adopt` makes it equal to
    that. `pauses` does what needs no order: it waits for the start, and copies the
    state."""

    saved: ClassVar = {"next_meeting": "next_time"}
    saves_at_rows = False
    ends_jointly = True

    def __init__(
        self,
        pauses: WorkerPauses,
        turns: Turns,
        status_board: StatusBoard,
        worker: int,
        merge: Callable[[], None],
        adopt: Callable[[], None],
        steps: Callable[[], int],
    ) -> None:
        self._pauses = pauses
        self._turns = turns
        self._status_board = status_board
        self._worker = worker
        self._merge = merge
        self._adopt = adopt
        self._steps = steps
        self._least = BETWEEN_MEETINGS // status_board.num_sessions
        self._joined = status_board.save_requested
        """The last joint checkpoint that this worker has made, or came too late for."""
        self._has_ended = False
        self.next_time = self._least
        """The virtual nanoseconds of the next meeting."""

    @override
    def wait_for_start(self) -> None:
        self._pauses.wait_for_start()

    @override
    def resume(self) -> None:
        """Waits for its turn. In a pause it keeps that: others wait, as no virtual time
        passes."""
        self._turns.take()

    @property
    @override
    def is_requested(self) -> bool:
        return self._turns.clock >= self.next_time

    @override
    def ask(self) -> None:
        if self._worker == 0 and self._status_board.save_requested == self._joined:
            self._status_board.request_save()

    @override
    def joint_state(self, copy: Callable[[], StateDict]) -> StateDict | None:
        wanted = self._turns.meet(self._status_board.save_requested)
        self._turns.take()
        self._merge()
        slowest = self._turns.meet(self._turns.clock // max(self._steps(), 1))
        self.next_time += max(self._least, STEPS_BETWEEN_MEETINGS * slowest)
        self._adopt()
        state = None
        if wanted > self._joined and not self._status_board.stop_requested:
            others_have_it = self._worker > 0
            state = self._pauses.copy(copy, others_have_it)
        self._turns.meet()
        self._joined = wanted
        self._status_board.checkpointed[self._worker] = wanted
        self._turns.take()
        return state

    @override
    def commit_barrier(self) -> None:
        """Waits until the files of all workers are on disk. A checkpoint at the end is
        a worker's own."""
        if not self._has_ended:
            self._turns.meet()
            self._turns.take()

    @override
    def final_state(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        self._has_ended = True
        self._turns.end()
        return self._pauses.final_state(copy, finished)
