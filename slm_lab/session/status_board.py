"""Shared memory of a Trial's parent and its Sessions: progress, clocks and flags."""

from copy import copy
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

import numpy as np

from slm_lab.core.types import Array, IntArray
from slm_lab.env.vector.raw import CopyMarks


class Phase(IntEnum):
    """The phase of a Session."""

    WAITING = 0
    """Waits for its first start, or for its replacement after a failure."""
    STARTING = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4
    STOPPED = 5
    READY = 6
    """Ready for its first step; waits for the other Sessions."""


TO_BEGIN = (Phase.WAITING, Phase.STARTING, Phase.READY)
"""Phases before the first step."""


class Flow(NamedTuple):
    """Recent throughput between a learner and its actors; columns of its rows. NaN:
    unknown."""

    eps: float
    policy_lag: float
    actor_wait_share: float
    learner_wait_share: float


PROGRESS_FIELDS = ("phase", "restarts", "fps", "recent_return", "best")
FIELDS = (*PROGRESS_FIELDS, *Flow._fields)


class SessionProgress(NamedTuple):
    """One Session as the display sees it; numbers are None until they are known."""

    phase: Phase
    frame: int
    restarts: int
    """The number of times that its process died and was replaced."""
    fps: float | None
    recent_return: float | None
    """Mean over the last episodes, like the column, but also given when only a few have
    ended."""
    best: float | None


END = int(np.iinfo(np.int64).max)
"""The number of the final checkpoint, whatever the number before it."""
PAUSED = END - 1
"""Marks a paused Session: it joins no checkpoint and changes nothing shared."""
EARLY = END - 2
"""Marks a Session that saved at its end without waiting for all others to pause."""

LOOP_PARTS = ("acting", "environment", "memory", "update")
"""The parts of the training loop whose seconds a Session counts."""

LOOP = np.dtype(
    [
        ("events", np.float64),
        ("frames", np.float64),
        ("seconds", np.float64),
        ("part_seconds", np.float64, len(LOOP_PARTS)),
    ]
)
"""A Session's progress at its last training event."""

FLAGS = ("stop", "save")
SLOTS = (
    "frame",
    "at_barrier",
    "checkpointed",
    "paused_us",
    "solved",
    "saving",
    "learning",
    "heartbeats",
)
RECORD = np.dtype(
    [
        *((name, np.int64) for name in SLOTS),
        *((name, np.float64) for name in FIELDS),
        ("loop", LOOP),
    ]
)


class StatusBoard:
    """Shared memory of one Trial: counts and a few numbers per Session, and flags for
    all. Every cell has one writer (a flag only increases), so no lock is needed that a
    dying process could keep."""

    def __init__(self, raw: Any, num_sessions: int) -> None:
        self.raw = raw
        self._flags: IntArray = np.frombuffer(raw, np.int64, len(FLAGS))
        records: Array = np.frombuffer(raw, RECORD, num_sessions, 8 * len(FLAGS))
        self._marks_at = self._flags.nbytes + records.nbytes
        marks: Array = np.frombuffer(
            raw, np.uint8, len(raw) - self._marks_at, self._marks_at
        )
        self._show(records, marks.reshape(num_sessions, len(marks) // num_sessions))
        self.reasons: dict[int, str] = {}
        """Why Sessions last failed or restarted, as known to this process; not
        shared."""
        self.stage = ""
        """The work of the Trial's process beside its Sessions, as a user reads it;
        empty while they train. Not shared."""

    def _show(self, records: Array, marks: Array) -> None:
        self.num_sessions = len(records)
        self.marks = marks
        """(W, C) uint8: the marks of each Session's copies, see `CopyMarks`."""
        self.records = records
        """(W,) of `RECORD`."""
        self.clock_slots = records["frame"]
        """(W,) frames of each Session; the other slots are (W,) too."""
        self.at_barrier = records["at_barrier"]
        """The checkpoint that it pauses for; 0 while it steps."""
        self.checkpointed = records["checkpointed"]
        """The last checkpoint that it completed."""
        self.paused_us = records["paused_us"]
        """Microseconds that this checkpoint kept it from training."""
        self.solved = records["solved"]
        """1 once it has reached the target return."""
        self.saving = records["saving"]
        """1 while it saves without waiting for others."""
        self.learning = records["learning"]
        """1 during a training event."""
        self.heartbeats = records["heartbeats"]
        """Counts of signs of life while no step ends."""
        self.loop = records["loop"]
        """(W,) of `LOOP`: the training events of this process; at the last of them the
        frames, the process's clock, and its seconds in each of LOOP_PARTS."""

    @classmethod
    def allocate(
        cls, context: BaseContext, num_sessions: int, copies: int = 0
    ) -> "StatusBoard":
        """A fresh status board in shared memory; its `raw` is passed to other
        processes. `copies` of environments per Session have a mark."""
        size = 8 * len(FLAGS) + num_sessions * (RECORD.itemsize + copies)
        status_board = cls(context.RawArray("b", size), num_sessions)
        for name in FIELDS[2:]:
            status_board.records[name] = np.nan
        return status_board

    def part(self, sessions: range) -> "StatusBoard":
        """A view of the same memory for consecutive `sessions`; the first becomes
        number 0."""
        part = copy(self)
        shown = slice(sessions.start, sessions.stop)
        part._show(self.records[shown], self.marks[shown])
        part._marks_at += sessions.start * self.marks.shape[1]
        return part

    def marks_of(self, session: int) -> CopyMarks:
        """The marks of a Session's copies, for the process that has them."""
        copies = self.marks.shape[1]
        return CopyMarks(self.raw, self._marks_at + session * copies, copies)

    def write(self, session: int, **numbers: float | None) -> None:
        """Sets some of a Session's fields."""
        for name, number in numbers.items():
            self.records[name][session] = np.nan if number is None else number

    def read(self, session: int) -> SessionProgress:
        """The progress that a Session last wrote."""
        record = self.records[session]
        phase, restarts, *numbers = (float(record[name]) for name in PROGRESS_FIELDS)
        fps, recent, best = (None if np.isnan(n) else n for n in numbers)
        return SessionProgress(
            phase=Phase(int(phase)),
            frame=int(record["frame"]),
            restarts=int(restarts),
            fps=fps,
            recent_return=recent,
            best=best,
        )

    def flow(self, session: int) -> Flow | None:
        """The flow that a learner last wrote; None if it wrote none, or is no
        learner."""
        numbers = [float(self.records[name][session]) for name in Flow._fields]
        if np.isnan(numbers).all():
            return None
        return Flow(*numbers)

    def phase(self, session: int) -> Phase:
        """The phase of a Session."""
        return Phase(int(self.records["phase"][session]))

    def request_stop(self, user_waits: bool = True) -> None:
        """Asks every Session to save and end at its next step. If the user waits, a
        Session whose step takes too long is killed."""
        self._flags[0] = max(self._flags[0], 1 + user_waits)

    @property
    def stop_requested(self) -> bool:
        """Whether `request_stop` was called, in any process."""
        return bool(self._flags[0])

    @property
    def user_waits(self) -> bool:
        """Whether `request_stop` was called for a waiting user."""
        return bool(self._flags[0] > 1)

    def request_save(self) -> None:
        """Requests a joint checkpoint from the Sessions of one training."""
        self._flags[1] += 1

    @property
    def save_requested(self) -> int:
        """The number of joint checkpoints requested so far."""
        return int(self._flags[1])
