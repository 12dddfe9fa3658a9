"""What remains of a Session and of a Trial when they have run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a Session, which reports its end, has no need of it
    from slm_lab.analysis.metrics import TrialMetrics
    from slm_lab.analysis.throughput import Throughput


class Ending(StrEnum):
    """How a Session ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class SessionResult:
    """A Session's end, as its process reports it."""

    session: int
    ending: Ending
    frame: int
    error: str | None = None
    """The message or traceback of a failure."""
    exit_code: int | None = None
    """Of the process; negative: the signal that killed it."""
    restarts: int = 0
    """How often its process died and was replaced."""
    restarted_because: str | None = None
    """How the last one of them died."""
    would_repeat: bool = False
    """Whether the same would happen again from the last checkpoint on."""
    diverged: bool = False
    """Whether its loss, a gradient or a statistic was not finite any more."""
    unusable: bool = False
    """Whether the checkpoint that it was to resume from cannot be used."""
    lost_others: bool = False
    """Whether it ended only because another of those that it trains with did."""
    lost: bool = False
    """Whether the machine that it ran on was lost."""

    @property
    def was_killed(self) -> bool:
        """Whether it did not end by itself."""
        return self.lost or (self.exit_code or 0) < 0


def never_began(sessions: Sequence[SessionResult]) -> bool:
    """Whether all of them failed before their first step, as they would again."""
    failed = [each.ending is Ending.FAILED and each.frame == 0 for each in sessions]
    return bool(failed) and all(failed)


@dataclass(frozen=True)
class TrialResult:
    """A Trial's end."""

    sessions: tuple[SessionResult, ...]
    metrics: "TrialMetrics"
    throughput: "Throughput"
    graphs: tuple[Path, ...]
    problem: str | None = None
    """Why metrics or graphs could not be written."""

    @property
    def failed(self) -> tuple[SessionResult, ...]:
        """The Sessions that did not get to an end of their own."""
        return tuple(s for s in self.sessions if s.ending is Ending.FAILED)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return any(s.ending is Ending.INTERRUPTED for s in self.sessions)
