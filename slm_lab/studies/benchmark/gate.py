"""The gate of a benchmark: whether every training of a row reaches the row's bound."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from slm_lab.core.errors import UsageError
from slm_lab.core.text import significant
from slm_lab.studies.benchmark.results import RowResult

GATE = "gate"
"""The shipped suite that `--gate` trains."""


@final
@dataclass(frozen=True)
class GateVerdict:
    """The rows that promise a bound, and which of them break it."""

    rows: tuple[RowResult, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every row keeps its bound."""
        return all(row.is_kept for row in self.rows)

    @property
    def failures(self) -> list[str]:
        """Which bounds are broken, and by what; a line for each."""
        return [_failure(row) for row in self.rows if not row.is_kept]

    def document(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        return {"bounds": [_judgement(row) for row in self.rows]}


def judge_bounds(results: Iterable[RowResult]) -> GateVerdict:
    """Judges the rows that have a bound. Raises UsageError if none has one."""
    rows = tuple(row for row in results if row.first.bound is not None)
    if not rows:
        raise UsageError(
            "no row of these results has a bound: there is nothing to judge"
        )
    return GateVerdict(rows)


def _failure(row: RowResult) -> str:
    finals = ", ".join(map(significant, row.final_returns)) or "none"
    bound = significant(row.first.bound)
    why = f"final returns {finals}; {row.unfinished}".rstrip("; ")
    return f"{row.first.row} is below its bound of {bound}: {why}"


def _judgement(row: RowResult) -> dict[str, Any]:
    return {
        "suite": row.first.suite,
        "row": row.first.row,
        "bound": row.first.bound,
        "final_returns": row.final_returns.tolist(),
        "kept": row.is_kept,
    }
