"""Shared memory between a Trial's parent and its Sessions: what is shown, and what is agreed on."""

import ctypes
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray, IntArray


class Phase(IntEnum):
    """Where a Session stands."""

    WAITING = 0
    STARTING = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4
    STOPPED = 5
    READY = 6
    """For its first step, once the others are."""


TO_BEGIN = (Phase.WAITING, Phase.STARTING, Phase.READY)
"""Those in which no step has been taken yet."""


class Flow(NamedTuple):
    """What passes between a learner and its actors lately; columns of its rows. NaN: not known."""

    eps: float
    policy_lag: float
    actor_wait_share: float
    learner_wait_share: float


PROGRESS_FIELDS = ("phase", "restarts", "fps", "recent_return", "best")
FIELDS = (*PROGRESS_FIELDS, *Flow._fields)


@dataclass(frozen=True)
class SessionProgress:
    """One Session as the display sees it; numbers are None until there are any."""

    phase: Phase
    frame: int
    restarts: int
    """How often its process died and was replaced."""
    fps: float | None
    recent_return: float | None
    """Mean over the last episodes; as the column, but also where only a few have ended."""
    best: float | None


END = int(np.iinfo(np.int64).max)
"""The checkpoint that is made at the end, whichever was the last before it."""
ASIDE = END - 1
"""The checkpoint of one that takes part in none and changes nothing meanwhile."""
EARLY = END - 2
"""The checkpoint of one that ended, and that had not waited until all others had come to theirs."""

FLAGS = ("stop", "save")
SLOTS = ("frame", "arrived", "copied", "parked", "solved", "saving")


class Board:
    """Shared memory of one Trial: counts and a few numbers per Session, and flags for all.

    Every cell has one writer (a flag is only ever raised), so there is no lock that a dying process
    could keep.
    """

    def __init__(self, raw: Any, num_sessions: int) -> None:
        self.raw = raw
        count = num_sessions * len(FIELDS)
        self._flags: IntArray = np.frombuffer(raw, np.int64, len(FLAGS))
        slots: IntArray = np.frombuffer(raw, np.int64, num_sessions * len(SLOTS), 8 * len(FLAGS))
        offset = 8 * (len(FLAGS) + num_sessions * len(SLOTS))
        cells: FloatArray = np.frombuffer(raw, np.float64, count, offset)
        self._show(slots.reshape(len(SLOTS), -1), cells.reshape(-1, len(FIELDS)))
        self.reasons: dict[int, str] = {}
        """Why Sessions failed or were restarted last, as far as this process knows; not shared."""

    def _show(self, slots: IntArray, cells: FloatArray) -> None:
        self.num_sessions = len(cells)
        self._slots, self._cells = slots, cells
        self.clock_slots, self.arrived, self.copied, self.parked, self.solved, self.saving = slots
        """(W,) each: frames; the checkpoint that a Session stands still for, 0 while it steps; the
        last one that it is done with; µs for which the last one kept it from training; 1 once it
        has reached the return at which the training ends; 1 while it makes a checkpoint, and waits
        for no other Session meanwhile."""

    @classmethod
    def allocate(cls, context: SpawnContext, num_sessions: int) -> "Board":
        """A fresh board in shared memory; `board.raw` travels to spawned processes."""
        size = len(FLAGS) + num_sessions * (len(SLOTS) + len(FIELDS))
        raw = context.RawArray(ctypes.c_int64, size)
        board = cls(raw, num_sessions)
        board._cells[:, 2:] = np.nan
        return board

    def part(self, sessions: range) -> "Board":
        """The same memory, of some Sessions that follow each other only: the first of them is 0."""
        part, cut = copy(self), slice(sessions.start, sessions.stop)
        part._show(self._slots[:, cut], self._cells[cut])
        return part

    def of_session(self, session: int) -> tuple[IntArray, FloatArray]:
        """What belongs to one Session, in shared memory too: its slots, and its fields."""
        return self._slots[:, session], self._cells[session]

    def write(self, session: int, **numbers: float | None) -> None:
        """Sets some of a Session's fields."""
        for name, number in numbers.items():
            self._cells[session, FIELDS.index(name)] = np.nan if number is None else number

    def read(self, session: int) -> SessionProgress:
        """What a Session last wrote."""
        cells = self._cells[session, : len(PROGRESS_FIELDS)]
        phase, restarts, *numbers = (float(cell) for cell in cells)
        fps, recent, best = (None if np.isnan(n) else n for n in numbers)
        frame = int(self.clock_slots[session])
        return SessionProgress(Phase(int(phase)), frame, int(restarts), fps, recent, best)

    def flow(self, session: int) -> Flow | None:
        """What a learner last wrote of its actors; None where there is nothing, or no learner."""
        numbers = self._cells[session, len(PROGRESS_FIELDS) :]
        return None if np.isnan(numbers).all() else Flow(*map(float, numbers))

    def phase(self, session: int) -> Phase:
        """Where a Session stands."""
        return Phase(int(self._cells[session, 0]))

    def request_stop(self, user_waits: bool = True) -> None:
        """Asks every Session to save and end at its next step. Where the user waits for it, one
        whose step takes too long is ended."""
        self._flags[0] = max(self._flags[0], 1 + user_waits)

    @property
    def stop_requested(self) -> bool:
        """Whether `request_stop` was called, in any process."""
        return bool(self._flags[0])

    @property
    def user_waits(self) -> bool:
        """Whether it was called for a user who waits."""
        return bool(self._flags[0] > 1)

    def request_save(self) -> None:
        """Asks the Sessions of one training for a checkpoint that they make together."""
        self._flags[1] += 1

    @property
    def save_requested(self) -> int:
        """How many such checkpoints were asked for."""
        return int(self._flags[1])
