"""The gate judges rows by their bounds."""

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.studies.benchmark.gate import judge_bounds
from slm_lab.studies.benchmark.results import row_results
from tests.unit.studies.benchmark.records import record


def test_rows_with_a_bound_are_judged_and_broken_ones_are_named():
    rows = row_results(
        [
            record(seed=1, row="kept", final=300.0, bound=200.0),
            record(seed=1, row="broken", final=300.0, bound=200.0),
            record(seed=2, row="broken", final=100.0, bound=200.0),
            record(seed=1, row="free", final=0.0),
        ]
    )
    verdict = judge_bounds(rows)
    assert not verdict.is_passed
    assert verdict.failures == [
        "broken is below its bound of 200: final returns 300, 100"
    ]
    kept = {bound["row"]: bound["kept"] for bound in verdict.document()["bounds"]}
    assert kept == {"kept": True, "broken": False}


def test_kept_bounds_pass():
    verdict = judge_bounds(row_results([record(final=300.0, bound=200.0)]))
    assert verdict.is_passed
    assert verdict.failures == []


def test_rows_without_a_bound_are_nothing_to_judge():
    with pytest.raises(UsageError, match="no row of these results has a bound"):
        judge_bounds(row_results([record()]))
