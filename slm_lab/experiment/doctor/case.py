"""What the doctor looks at, and what it finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, final

import numpy as np

from slm_lab.core.errors import UsageError
from slm_lab.core.types import FloatArray
from slm_lab.experiment.plot.runs import FoundTrial, ReadRows
from slm_lab.experiment.runs.summary import trial_metrics
from slm_lab.metrics.reader import Rows
from slm_lab.storage.intact import read_saved_rows
from slm_lab.storage.lock import is_locked
from slm_lab.storage.result import Ending, SessionResult


class Finding(NamedTuple):
    """Something that is wrong."""

    what: str
    evidence: str
    """The numbers that show it."""
    advice: str
    """One thing to try."""


@final
@dataclass(frozen=True, eq=False)
class Course:
    """The rows of a Session, and its spec."""

    rows: Rows
    spec: Mapping[str, Any]
    """As the run folder holds it, with every default."""

    def key(self, path: str) -> Any:
        """The value of a dotted path of the spec; None if there is none."""
        found: Any = self.spec
        for name in path.split("."):
            found = (found or {}).get(name)
        return found

    def values(self, column: str, begin: float = 0.0, end: float = 1.0) -> FloatArray:
        """The finite values of a column between two shares of the rows; none without the column."""
        if column not in self.rows.columns:
            return np.empty(0)
        count = len(self.rows)
        part = self.rows[column][int(begin * count) : max(1, round(end * count))]
        return part[np.isfinite(part)]

    def late(self, column: str) -> float:
        """The median of the last half; NaN without values."""
        return median(self.values(column, 0.5))

    @property
    def spread(self) -> float:
        """The difference between the highest and the lowest return of a row."""
        returns = self.values("mean_return")
        return float(np.ptp(returns)) if len(returns) else 0.0


@final
@dataclass(frozen=True, eq=False)
class Case:
    """A Trial whose run the doctor looks at."""

    trial: FoundTrial
    rows: Mapping[int, Rows]
    """Of each Session that writes rows and has begun."""
    metrics: Mapping[str, Any]
    """Of the Trial; empty before its end."""
    ends: Sequence[SessionResult]
    """How its Sessions ended; empty before the end."""
    is_training: bool

    @property
    def courses(self) -> dict[int, Course]:
        """The course of each Session with rows."""
        return {s: Course(rows, self.trial.spec) for s, rows in self.rows.items() if len(rows)}


def median(values: FloatArray) -> float:
    """NaN without values."""
    return float(np.median(values)) if len(values) else float("nan")


def read_case(trial: FoundTrial, read: ReadRows = read_saved_rows) -> Case:
    """The rows and results of a Trial so far. Raises UsageError for a damaged file."""
    paths = {s: trial.run_dir.session(trial.trial, s) for s in trial.meta.writers}
    rows = {s: read(each, each.rows) for s, each in paths.items() if each.rows.exists()}
    metrics = trial_metrics(trial.run_dir, trial.trial)
    try:
        ends = [_result(each) for each in metrics.get("sessions") or ()]
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(f"{trial.where}: its metrics cannot be read: {error!r}") from None
    return Case(trial, rows, metrics, ends, is_locked(trial.run_dir.root))


def _result(recorded: Mapping[str, Any]) -> SessionResult:
    """A Session's result in a metrics file; an earlier version may lack fields."""
    known = {
        field.name: recorded[field.name]
        for field in fields(SessionResult)
        if field.name in recorded
    }
    error = known.get("error")
    known["error"] = error if error is None else str(error)
    return SessionResult(**{"frame": 0, **known, "ending": Ending(known["ending"])})
