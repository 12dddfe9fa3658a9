"""The results of a Session and of a Trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the process of a Session does not need these modules
    from slm_lab.metrics.trial_metrics import Throughput, TrialMetrics
    from slm_lab.spec.schema.meta import MetaSpec


class Ending(StrEnum):
    """The ending of a Session."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class SessionResult:
    """A Session's result, as its process reports it."""

    session: int
    ending: Ending
    frame: int
    error: str | None = None
    """The message or traceback of a failure."""
    exit_code: int | None = None
    """The exit code of the process; negative: the signal that killed it."""
    restarts: int = 0
    """The number of times that its process died and was replaced."""
    restarted_because: str | None = None
    """Why the last replaced process died."""
    would_repeat: bool = False
    """Whether the failure would repeat after a restart from the last checkpoint."""
    diverged: bool = False
    """Whether a loss, gradient or statistic became non-finite."""
    unusable: bool = False
    """Whether the checkpoint to resume from cannot be used."""
    lost_others: bool = False
    """Whether it ended only because a peer did."""
    lost: bool = False
    """Whether its machine was lost."""

    @property
    def is_stuck(self) -> bool:
        """Whether a resume would end in the same way."""
        return self.diverged or self.unusable

    @property
    def was_killed(self) -> bool:
        """Whether a signal or the loss of its machine ended it."""
        return self.lost or (self.exit_code or 0) < 0


def never_began(sessions: Sequence[SessionResult]) -> bool:
    """Whether all of them failed before their first step."""
    failed = [
        result.ending is Ending.FAILED and result.frame == 0 for result in sessions
    ]
    return bool(failed) and all(failed)


def session_results(recorded: Sequence[Mapping[str, Any]]) -> list[SessionResult]:
    """The results that the metrics of a Trial hold; an earlier version lacks fields.
    Raises ValueError or TypeError if they are damaged."""
    from pydantic import TypeAdapter

    adapter = TypeAdapter(list[SessionResult])
    return adapter.validate_python([{"frame": 0, **end} for end in recorded])


@dataclass(frozen=True)
class TrialResult:
    """A Trial's result."""

    sessions: tuple[SessionResult, ...]
    metrics: "TrialMetrics"
    throughput: "Throughput"
    graphs: tuple[Path, ...]
    problem: str | None = None
    """Why metrics or graphs could not be written."""
    lacks_graphs: bool = False
    """Whether a stop left graphs undrawn; a resume draws them."""

    @property
    def failed(self) -> tuple[SessionResult, ...]:
        """The Sessions that failed."""
        return tuple(s for s in self.sessions if s.ending is Ending.FAILED)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the Trial, maybe while it drew its graphs."""
        stopped = any(s.ending is Ending.INTERRUPTED for s in self.sessions)
        return stopped or self.lacks_graphs

    def unfinished(self, meta: "MetaSpec") -> list[SessionResult]:
        """The Sessions that have not finished. Actors end with their learner."""
        return [
            result
            for result in self.sessions
            if result.ending is not Ending.FINISHED
            and not meta.is_actor(result.session)
        ]

    def is_resume_useful(self, meta: "MetaSpec") -> bool:
        """Whether a resume would train or draw, and not only fail again."""
        if never_began(self.sessions):
            return False
        unfinished = self.unfinished(meta)
        stuck = [result for result in unfinished if result.is_stuck]
        if not stuck:
            return bool(unfinished) or self.lacks_graphs
        return any(not (result.is_stuck or result.lost_others) for result in unfinished)
