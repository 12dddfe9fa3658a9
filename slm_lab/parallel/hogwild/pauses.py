"""Checkpoints that Hogwild! workers make together, without a lock.

Each worker writes its own progress to the status board and reads the progress of the
others."""

import logging
import time
from collections.abc import Callable
from typing import final

from typing_extensions import override

from slm_lab.core.types import StateDict
from slm_lab.parallel.wait import START_SECONDS, wait_until
from slm_lab.session.status_board import EARLY, END, PAUSED, Phase, StatusBoard
from slm_lab.session.strategy import JointCheckpoint, StartBarrier

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""Maximum wait for all other workers to pause; longer if its last training event took
longer."""
STOP_PAUSE_SECONDS = 1.0
"""PAUSE_SECONDS when the user waits."""
POLL_SECONDS = 0.0005


def _wait(until: Callable[[], bool], seconds: float | None = None) -> bool:
    return wait_until(
        until, PAUSE_SECONDS if seconds is None else seconds, POLL_SECONDS
    )


@final
class WorkerPauses(StartBarrier, JointCheckpoint):
    """Workers start together; none steps while others copy their state. The parent
    requests a checkpoint. Each worker pauses at its next step boundary and copies its
    state once all others pause too. `copy_shared` copies the shared weights into this
    worker before it copies its state."""

    saves_at_rows = False

    def __init__(
        self, status_board: StatusBoard, worker: int, copy_shared: Callable[[], None]
    ) -> None:
        self._status_board = status_board
        self._me = worker
        self._copy_shared = copy_shared
        self._joined = status_board.save_requested
        """The last joint checkpoint that this worker joined or missed."""
        self._has_failed = False
        """Whether not all paused for the last one. Then this worker asks for no more,
        as all might wait as long again."""
        self.event_seconds = 0.0
        """The duration of the last training event."""

    @override
    def wait_for_start(self) -> None:
        """Prevents one worker from spending the budget alone. A late worker does not
        wait."""
        self._status_board.write(self._me, phase=Phase.READY)
        _wait(self._may_begin, START_SECONDS)

    def _may_begin(self) -> bool:
        phases = {
            self._status_board.phase(worker)
            for worker in range(self._status_board.num_sessions)
        }
        return Phase.RUNNING in phases or not {Phase.WAITING, Phase.STARTING} & phases

    @override
    def resume(self) -> None:
        status_board = self._status_board
        wanted = self._status_board.save_requested
        barriers = status_board.at_barrier
        done = status_board.checkpointed
        _wait(
            lambda: (
                not any(
                    barriers[other] == wanted > done[other] for other in self._running()
                )
            )
        )
        wanted = status_board.save_requested
        over = bool((status_board.checkpointed == wanted).any())
        status_board.checkpointed[self._me] = self._joined = (
            wanted if over else wanted - 1
        )
        status_board.at_barrier[self._me] = 0

    @override
    def pause(self) -> None:
        self._status_board.checkpointed[self._me] = self._status_board.at_barrier[
            self._me
        ] = PAUSED

    @property
    @override
    def is_requested(self) -> bool:
        return self._status_board.save_requested > self._joined

    @override
    def ask(self) -> None:
        status_board = self._status_board
        is_first = not any(worker < self._me for worker in self._running())
        if (
            is_first
            and not self._has_failed
            and status_board.save_requested == self._joined
        ):
            status_board.request_save()

    @override
    def joint_state(self, copy: Callable[[], StateDict]) -> StateDict | None:
        status_board = self._status_board
        me = self._me
        began = time.perf_counter()
        self._joined = wanted = status_board.save_requested
        status_board.at_barrier[me] = wanted
        state = self._copy_when_all_pause(wanted, copy)
        self._has_failed = state is None
        if state is None:
            # first, so that no other worker counts it as paused
            status_board.at_barrier[me] = 0
            logger.warning(
                "no checkpoint: not all workers paused within %.3g s", self._patience
            )
        status_board.checkpointed[me] = wanted
        if state is not None:
            barriers = status_board.at_barrier
            done = status_board.checkpointed
            _wait(
                lambda: all(
                    done[o] >= wanted or barriers[o] == END for o in self._running()
                )
            )
        status_board.at_barrier[me] = 0
        status_board.paused_us[me] = int(1e6 * (time.perf_counter() - began))
        return state

    @override
    def final_state(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        """Copies the state at the end. A worker that did not wait for all others marks
        itself EARLY before it copies. Later workers do not rely on its copy, so the
        last copy always holds all shared state."""
        status_board = self._status_board
        me = self._me
        status_board.at_barrier[me] = END
        seconds = PAUSE_SECONDS
        if status_board.user_waits:
            seconds = STOP_PAUSE_SECONDS
        if not (finished or status_board.stop_requested):
            seconds = 0.0  # this worker has failed; the others go on
        all_pause = _wait(lambda: self._all_pause(END), seconds)
        status_board.saving[me] = 1
        if all_pause:
            state = self.copy(
                copy, any(status_board.checkpointed[o] != EARLY for o in self._before())
            )
            status_board.checkpointed[me] = END
        else:
            logger.warning("saved at the end, though not all workers paused by then")
            status_board.checkpointed[me] = EARLY
            state = self.copy(copy, another_has_it=False)
        return state

    def _copy_when_all_pause(
        self, wanted: int, copy: Callable[[], StateDict]
    ) -> StateDict | None:
        """A copy of the state, made while all workers pause. None if a worker resumed
        meanwhile: its clock ticks before it changes a weight."""
        status_board = self._status_board
        _wait(
            lambda: self._all_pause(wanted) or self._some_resumed(wanted),
            self._patience,
        )
        frames = status_board.clock_slots.copy()
        if not self._all_pause(wanted):
            return None
        state = self.copy(
            copy, any(status_board.at_barrier[o] == wanted for o in self._before())
        )
        if (status_board.clock_slots == frames).all():
            return state
        return None

    @property
    def _patience(self) -> float:
        return max(PAUSE_SECONDS, self.event_seconds)

    def _running(self) -> list[int]:
        workers = range(self._status_board.num_sessions)
        return [
            w
            for w in workers
            if w != self._me and self._status_board.phase(w) is Phase.RUNNING
        ]

    def _before(self) -> list[int]:
        return [worker for worker in self._running() if worker < self._me]

    def _all_pause(self, wanted: int) -> bool:
        status_board = self._status_board
        return all(
            status_board.at_barrier[other] >= min(wanted, PAUSED)
            for other in self._running()
        )

    def _some_resumed(self, wanted: int) -> bool:
        """Whether a worker has completed the checkpoint or given it up."""
        status_board = self._status_board
        return any(
            status_board.checkpointed[o] >= wanted > status_board.at_barrier[o]
            for o in self._running()
        )

    def copy(self, copy: Callable[[], StateDict], another_has_it: bool) -> StateDict:
        """A copy of the state, with the optimizers' state unless another worker's copy
        has it."""
        self._copy_shared()
        state = copy()
        if another_has_it:
            for optimizer in state["agent"]["learner"]["train_state"].values():
                optimizer["rule"] = None
        return state
