"""Prints a line when a Session first reaches a return: `--track milestones`."""

from typing import Any

STEP = 10.0


class Milestones:
    """One line for each Session and each multiple of STEP."""

    def __init__(self) -> None:
        self._reached: dict[int, float] = {}

    def on_row(self, run: Any, row: dict[str, Any]) -> None:
        """Compares the recent return of a Session with its last milestone."""
        recent = row["recent_return"]
        session = row["session"]
        if recent is None or recent < self._reached.get(session, 0.0) + STEP:
            return
        self._reached[session] = recent - recent % STEP
        print(
            f"{run.name}, Session {session}: {recent:.0f} at frame {row['frame']:.0f}"
        )
