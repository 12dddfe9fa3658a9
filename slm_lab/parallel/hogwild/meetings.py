"""Checkpoints that Hogwild! workers make together in virtual time.

Workers meet at fixed virtual times, each at its first step boundary after these. All of
them then have what the others know. A checkpoint is made there, if one is due. So it
changes nothing in what they learn, and a resumed training repeats an uninterrupted
one."""

from collections.abc import Callable
from typing import final

from typing_extensions import override

from slm_lab.core.types import StateDict
from slm_lab.parallel.hogwild.pauses import WorkerPauses
from slm_lab.parallel.virtual.turns import Turns
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import JointCheckpoint, StartBarrier

BETWEEN_MEETINGS = 5_000_000_000
"""Virtual nanoseconds of all workers together between two meetings: about the real
ones."""


@final
class WorkerMeetings(StartBarrier, JointCheckpoint):
    """The meetings of one of W workers. `merge` adds what this worker knows to the
    shared state, `adopt` makes it equal to that. `pauses` does what needs no order: it
    waits for the start, and copies the state."""

    saves_at_rows = False

    def __init__(
        self,
        pauses: WorkerPauses,
        turns: Turns,
        board: StatusBoard,
        worker: int,
        merge: Callable[[], None],
        adopt: Callable[[], None],
    ) -> None:
        self._pauses = pauses
        self._turns = turns
        self._board = board
        self._worker = worker
        self._merge = merge
        self._adopt = adopt
        self._interval = BETWEEN_MEETINGS // board.num_sessions
        self._joined = board.save_requested
        """The last joint checkpoint that this worker has made, or came too late for."""
        self._has_ended = False
        self.num_meetings = 0
        """The meetings so far, those before a resume included."""

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
        return self._turns.clock >= (self.num_meetings + 1) * self._interval

    @override
    def joint_state(self, copy: Callable[[], StateDict]) -> StateDict | None:
        self.num_meetings += 1
        wanted = self._turns.meet(self._board.save_requested)
        self._turns.take()
        self._merge()
        self._turns.meet()
        self._adopt()
        state = None
        if wanted > self._joined and not self._board.stop_requested:
            others_have_it = self._worker > 0
            state = self._pauses.copy(copy, others_have_it)
        self._turns.meet()
        self._joined = wanted
        self._board.checkpointed[self._worker] = wanted
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
