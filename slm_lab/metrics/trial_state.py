"""The state of the trials of a search, and their ranking."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, final

Params: TypeAlias = Mapping[str, Any]
"""The value of each searched key, by its dotted path."""


class Status(StrEnum):
    """The status of a trial in a search."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    """Stopped early, by the scheduler."""
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether the trial will not run again."""
        return self in (Status.FINISHED, Status.STOPPED, Status.FAILED)


@final
@dataclass
class TrialState:
    """The state of a trial after all events so far. `score` is what the search
    maximises: the mean of `final_return` over the Sessions. Where the scheduler has
    stopped the trial it is the mean of `recent_return`. `seconds` is its training
    time."""

    trial: int
    params: Params
    status: Status = Status.WAITING
    frame: int = 0
    """The frame of its last report."""
    score: float | None = None
    reports: int = 0
    seconds: float = 0.0
    restarts: int = 0
    has_begun: bool = False
    folder: str | None = None
    """The name of its own run folder; None if it has none yet, or shares one."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None
    last_failure: str | None = None
    """The error before its last restart."""
    would_repeat: bool = False
    copies: int = 0
    donor: int | None = None
    """The trial whose weights it last copied."""

    @property
    def known_score(self) -> float | None:
        """The score of a trial that has a finite one and has not failed."""
        return self._known(self.score)

    def metric(self, name: str) -> float | None:
        """One of `metrics`, where it is finite and the trial has not failed."""
        return self._known(self.metrics.get(name))

    def _known(self, number: float | None) -> float | None:
        if number is None or self.status is Status.FAILED or not math.isfinite(number):
            return None
        return number


TABLE_TRIALS = 10
"""Trials in the table of a search, the best ones first."""


def ranked(trials: Iterable[TrialState]) -> list[TrialState]:
    """The trials, the best first. Trials that spent the whole budget come first, by
    score. Trials stopped early follow, by frames, then score, and trials that have not
    ended likewise. Trials without a score are last. Equals are ordered by number."""
    return sorted(trials, key=_place)


def _place(state: TrialState) -> tuple[float, ...]:
    score = state.known_score
    if score is None:
        return (3, 0, 0, state.trial)
    if state.status is Status.FINISHED:
        return (0, 0, -score, state.trial)
    return (
        1 if state.status is Status.STOPPED else 2,
        -state.frame,
        -score,
        state.trial,
    )
