"""What the live display shows: numbers that Sessions write and the Trial's parent reads."""

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any

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


FIELDS = ("phase", "fps", "total_reward", "total_reward_ma", "best")


@dataclass(frozen=True)
class SessionProgress:
    """One Session as the display sees it; numbers are None until there are any."""

    phase: Phase
    frame: int
    fps: float | None
    total_reward: float | None
    total_reward_ma: float | None
    best: float | None


class Board:
    """Shared memory of one Trial: a clock slot and a few numbers per Session, and a stop flag.

    Every cell has one writer, so there is no lock that a dying process could keep.
    """

    def __init__(self, raw: Any, num_sessions: int) -> None:
        self.raw = raw
        size = num_sessions * 8
        self.clock_slots: IntArray = np.frombuffer(raw, np.int64, num_sessions, 0)
        count = num_sessions * len(FIELDS)
        self._cells: FloatArray = np.frombuffer(raw, np.float64, count, size).reshape(
            num_sessions, len(FIELDS)
        )
        self._stop = np.frombuffer(raw, np.int64, 1, size + count * 8)

    @classmethod
    def allocate(cls, context: SpawnContext, num_sessions: int) -> "Board":
        """A fresh board in shared memory; `board.raw` travels to spawned processes."""
        raw = context.RawArray(ctypes.c_int64, num_sessions * (1 + len(FIELDS)) + 1)
        board = cls(raw, num_sessions)
        board._cells[:, 1:] = np.nan
        return board

    def write(self, session: int, **numbers: float | None) -> None:
        """Sets some of a Session's fields."""
        for name, number in numbers.items():
            self._cells[session, FIELDS.index(name)] = np.nan if number is None else number

    def read(self, session: int) -> SessionProgress:
        """What a Session last wrote."""
        phase, *numbers = (float(cell) for cell in self._cells[session])
        fps, reward, reward_ma, best = (None if np.isnan(n) else n for n in numbers)
        frame = int(self.clock_slots[session])
        return SessionProgress(Phase(int(phase)), frame, fps, reward, reward_ma, best)

    def request_stop(self) -> None:
        """Asks every Session to save and end at its next step."""
        self._stop[0] = 1

    @property
    def stop_requested(self) -> bool:
        """Whether `request_stop` was called, in any process."""
        return bool(self._stop[0])
