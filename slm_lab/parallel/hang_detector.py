"""Detects Sessions that make no progress."""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias, final

from slm_lab.env.vector.raw import RESETTING, STEPPING
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.schema.meta import MetaSpec

Due: TypeAlias = Callable[[int], Hashable | None]
"""Maps a Session's index to None if it need not make progress now. Otherwise to True,
or to a value that changes with progress that the status board does not
show."""
HANG_SECONDS = 300.0
"""How long a Session on a cluster may make no progress although some is due."""
PATIENCE_SECONDS = 3600.0
"""How long a training event or a save may take, and how long actors may wait for
one."""
CHECKS_TO_HANG = 4
"""Minimum number of checks without progress, so that a suspended observer sees no
hang."""


class Limits(NamedTuple):
    """The seconds that environments may take."""

    step: float
    reset: float | None
    """The seconds of a reset; None: it may take any time."""

    @classmethod
    def of(cls, meta: MetaSpec) -> "Limits":
        """The limits of a spec."""
        return cls(meta.step_seconds, meta.reset_seconds)


class Work(NamedTuple):
    """The work of a Session, and the seconds that it may take."""

    what: str
    seconds: float
    key: str = ""
    """The key of the spec that sets the limit."""

    def hang_reason(self, session: int) -> str:
        """The message when the work has taken longer."""
        see = ""
        if self.key:
            see = f"; see {self.key}"
        return (
            f"Session {session} hangs: {self.what} has not ended for {self.seconds:g} "
            f"s{see}"
        )


@final
class HangDetector:
    """Finds which of `sessions` hang. The records of such a Session on the status
    board stay unchanged for `seconds` although progress was due (see `Due`). By default
    `limits` bounds the time that its present work may take."""

    def __init__(
        self,
        status_board: StatusBoard,
        sessions: Sequence[int],
        due: Due,
        limits: Limits,
        seconds: float | None = None,
    ) -> None:
        self._status_board = status_board
        self._sessions = sessions
        self._due = due
        self._limits = limits
        self._seconds = seconds
        self._signs: list[Hashable] = [None] * len(sessions)
        self._silent = [0.0] * len(sessions)
        self._checked_at = time.monotonic()

    def hung(self) -> list[tuple[int, str]]:
        """The Sessions that hang now, and why; call it a few times a second."""
        now = time.monotonic()
        passed = now - self._checked_at
        self._checked_at = now
        hung = []
        for index, session in enumerate(self._sessions):
            due = self._due(index)
            marks = self._status_board.marks[session].tobytes()
            sign = due, self._status_board.records[session].tobytes(), marks
            work = self._work(session, marks)
            is_silent = due is not None and sign == self._signs[index]
            since = min(passed, work.seconds / CHECKS_TO_HANG)
            self._silent[index] = self._silent[index] + since if is_silent else 0.0
            self._signs[index] = sign
            if self._silent[index] > work.seconds:
                hung.append((session, work.hang_reason(session)))
        return hung

    def _work(self, session: int, marks: bytes) -> Work:
        status_board = self._status_board
        (step, reset) = self._limits
        starts = status_board.phase(session) is Phase.STARTING
        if self._seconds is not None:
            return Work("its start" if starts else "its step", self._seconds)
        reset = math.inf if reset is None else reset
        if STEPPING in marks:
            return Work(
                f"the step of {_copies(marks, STEPPING)}", step, "meta.step_seconds"
            )
        if RESETTING in marks:
            return Work(
                f"the reset of {_copies(marks, RESETTING)}", reset, "meta.reset_seconds"
            )
        if starts:
            return Work("its start", reset, "meta.reset_seconds")
        if status_board.learning[session] or status_board.saving[session]:
            return Work("a training event or a save", PATIENCE_SECONDS)
        return Work("a step", step, "meta.step_seconds")


def _copies(marks: bytes, mark: int) -> str:
    """ "copy 1", or "copies 0, 3"."""
    numbers = [str(copy) for copy, state in enumerate(marks) if state == mark]
    return f"{'copy' if len(numbers) == 1 else 'copies'} {', '.join(numbers)}"


def session_due(
    status_board: StatusBoard, sessions: Sequence[int], index: int
) -> bool | None:
    """Progress is due from a Session that starts or runs."""
    if status_board.phase(sessions[index]) in (Phase.STARTING, Phase.RUNNING):
        return True
    return None
