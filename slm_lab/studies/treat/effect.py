"""What a remedy has done: the returns late in its training against the run's."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.doctor.diagnosis import diagnose
from slm_lab.doctor.history import median, read_histories
from slm_lab.records.run_record import RunRecord
from slm_lab.studies.compare.plan import TriedRemedy

LATE = 1 / 3
"""The share of a remedy's frames, at their end, whose returns are compared."""


class Verdict(StrEnum):
    """What a remedy has done about a finding; the best first."""

    CURED = "cured"
    """The finding is gone, and the returns are better."""
    BETTER = "better, not cured"
    """The returns are better, but the doctor finds the same again."""
    NO_BETTER = "no better"
    FAILED = "failed"
    """The training with the remedy failed."""
    UNTRIED = "not tried yet"


class Returns(NamedTuple):
    """The mean returns of the rows late in a remedy's training: its own, and those of
    the run, (n,) and (m,)."""

    treated: FloatArray
    untreated: FloatArray
    random: float | None
    """The return of random actions; None if it is unknown."""

    @property
    def are_better(self) -> bool:
        """Whether three quarters of the treated rows are above three quarters of the
        untreated ones, and the median is clearly above random actions. A run without
        any episode is worse than one with some."""
        if not len(self.treated):
            return False
        if self.random is not None:
            least = self.random + 0.1 * abs(self.random)
            if median(self.treated) <= least:
                return False
        if not len(self.untreated):
            return True
        return bool(np.quantile(self.treated, 0.25) > np.quantile(self.untreated, 0.75))


def returns_of(treated: RunRecord, run: RunRecord, remedy: TriedRemedy) -> Returns:
    """The returns that show the effect of a remedy. Raises UsageError for damaged
    rows."""
    return Returns(
        treated=_late(treated, remedy),
        untreated=_late(run, remedy),
        random=treated.metrics.get("random_return"),
    )


def verdict_on(
    finding: str, treated: RunRecord, returns: Returns, imports: tuple[str, ...]
) -> Verdict:
    """What a remedy has done about a finding. Imports torch. Raises UsageError for
    damaged rows."""
    if not returns.are_better:
        return Verdict.NO_BETTER
    _, again, _ = diagnose(
        run=str(treated.folder),
        data_dir=treated.folder.parent,
        imports=imports,
        trust=False,
        judges_short=True,
    )
    if any(found.what == finding for found in again):
        return Verdict.BETTER
    return Verdict.CURED


def _late(record: RunRecord, remedy: TriedRemedy) -> FloatArray:
    """The mean returns of the rows in the last third of a remedy's frames; of a run
    that did not come so far, in the last third of its own."""
    parts = []
    for history in read_histories(record).values():
        frames = history.column("total_frame")
        end = min(remedy.until, frames[-1])
        begin = end - LATE * (end - min(remedy.frame, end))
        returns = history.column("mean_return")
        parts.append(returns[(frames > begin) & (frames <= end) & np.isfinite(returns)])
    return np.concatenate(parts) if parts else np.empty(0)
