"""What a remedy has done: the returns late in its training against the run's."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.doctor.diagnosis import diagnose
from slm_lab.doctor.history import median, read_histories
from slm_lab.doctor.learning import SEVERAL
from slm_lab.records.run_record import RunRecord
from slm_lab.studies.treat.plan import TriedRemedy

LATE = 1 / 3
"""The share of the frames since a run was well, at their end, whose returns are
compared."""
MOST = 0.9
"""The share of treated rows that must be above as many of the untreated ones."""


class RemedyVerdict(StrEnum):
    """What a remedy has done about a finding; the best first."""

    CURED = "cured"
    """The finding is gone, with all more serious ones, and the returns are better."""
    BETTER = "better, not cured"
    """The returns are better, but the doctor finds the same or worse, or cannot
    tell."""
    NO_BETTER = "no better"
    FAILED = "failed"
    """The training with the remedy failed."""
    LOST = "its folder is gone"
    UNTRIED = "not tried yet"


class Returns(NamedTuple):
    """The mean returns of the rows late in a remedy's training: the remedy's (n,), and
    the run's (m,)."""

    treated: FloatArray
    untreated: FloatArray
    random: float | None
    """The return of random actions; None if it is unknown."""

    @property
    def are_better(self) -> bool:
        """Whether nine tenths of the treated rows are above nine tenths of the
        untreated ones. The median of the treated rows must also be clearly above random
        actions. A run without any episode is worse than one with some."""
        if not len(self.treated):
            return False
        if self.random is not None:
            least = self.random + 0.1 * abs(self.random)
            if median(self.treated) <= least:
                return False
        if not len(self.untreated):
            return True
        lowest = np.quantile(self.treated, 1 - MOST)
        return bool(lowest > np.quantile(self.untreated, MOST))


def returns_of(treated: RunRecord, run: RunRecord, remedy: TriedRemedy) -> Returns:
    """The returns that show the effect of a remedy. Raises UsageError for damaged
    rows."""
    return Returns(
        treated=late_returns(treated, remedy),
        untreated=late_returns(run, remedy),
        random=treated.metrics.get("random_return"),
    )


def verdict_on(
    findings: Sequence[str],
    treated: RunRecord,
    returns: Returns,
    imports: tuple[str, ...],
) -> RemedyVerdict:
    """What a remedy has done about the last of `findings`, whose others are
    more serious. Imports torch. Raises UsageError for damaged rows."""
    if not returns.are_better:
        return RemedyVerdict.NO_BETTER
    rows = [len(history.rows) for history in read_histories(treated).values()]
    _, again, unseen = diagnose(
        run=str(treated.folder),
        data_dir=treated.folder.parent,
        imports=imports,
        trust=False,
        judges_short=True,
    )
    is_back = any(finding.what in findings for finding in again)
    if is_back or unseen is not None or min(rows) < SEVERAL:
        return RemedyVerdict.BETTER
    return RemedyVerdict.CURED


def late_returns(
    record: RunRecord, remedy: TriedRemedy, sessions: Collection[int] | None = None
) -> FloatArray:
    """The mean returns of late rows. Late is the last third of the frames between
    `remedy.since`, when the run was well, and `remedy.until`. A run that did not come
    so far counts up to its own end. Rows are of all Sessions, or of `sessions`. Raises
    UsageError for damaged rows."""
    parts = []
    for session, history in read_histories(record).items():
        if sessions is not None and session not in sessions:
            continue
        frames = history.column("total_frame")
        end = min(remedy.until, frames[-1])
        begin = end - LATE * (end - min(remedy.since, end))
        returns = history.column("mean_return")
        parts.append(returns[(frames > begin) & (frames <= end) & np.isfinite(returns)])
    return np.concatenate(parts) if parts else np.empty(0)
