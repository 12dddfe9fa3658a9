"""Detects Sessions that make no progress."""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, final

from slm_lab.session.status_board import StatusBoard

Due: TypeAlias = Callable[[int], Hashable | None]
"""Maps a Session's index to None if it need not make progress now. Otherwise to True, or to a
value that changes with progress that the board does not show."""
HANG_SECONDS = 300.0
"""How long a Session may make no progress although some is due."""
CHECKS_TO_HANG = 4
"""Minimum number of checks without progress, so that a suspended observer sees no hang."""


@final
class HangDetector:
    """Finds which of `sessions` hang: their records on the board stay unchanged for `seconds`
    although progress was due, see `Due`."""

    def __init__(
        self, board: StatusBoard, sessions: Sequence[int], due: Due, seconds: float | None = None
    ) -> None:
        self._board = board
        self._sessions = sessions
        self._due = due
        self.seconds = HANG_SECONDS if seconds is None else seconds
        self._signs: list[Hashable] = [None] * len(sessions)
        self._silent = [0.0] * len(sessions)
        self._checked_at = time.monotonic()

    def hung(self) -> list[int]:
        """The Sessions that hang now; call it a few times a second."""
        now = time.monotonic()
        since = min(now - self._checked_at, self.seconds / CHECKS_TO_HANG)
        self._checked_at = now
        for index, session in enumerate(self._sessions):
            due = self._due(index)
            sign = due, self._board.records[session].tobytes()
            is_silent = due is not None and sign == self._signs[index]
            self._silent[index] = self._silent[index] + since if is_silent else 0.0
            self._signs[index] = sign
        hung = zip(self._sessions, self._silent, strict=True)
        return [session for session, silent in hung if silent > self.seconds]
