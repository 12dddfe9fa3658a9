"""What is kept of a training that the user stops."""

import pytest

from slm_lab.records.event_log import Began, Interrupted, Proposed
from slm_lab.studies.benchmark.plan import BenchmarkPlan
from slm_lab.studies.benchmark.run import BenchmarkRun
from tests.unit.studies.benchmark.test_plan import ROW


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A benchmark of one training, which runs."""
    monkeypatch.setattr(BenchmarkRun, "_was_alone", lambda run, trial: False)
    plan = BenchmarkPlan("suite", [ROW], episodes=0, data=tmp_path / "data")
    run = BenchmarkRun(plan, tmp_path / "runs", jobs=1)
    for event in (Proposed(0, run.propose(0)), Began(0)):
        run.study.record(event)
    return run


def stop(run):
    event = Interrupted(0, seconds=1.0)
    run.study.record(event)
    return run.notify(event)


def test_its_result_so_far_is_written(run):
    assert stop(run) == []
    (kept,) = run.plan.records()
    assert (kept.row, kept.seed, kept.ending) == ("small", 1, "stopped")


def test_a_result_that_cannot_be_written_stops_no_other(run, caplog):
    run.plan.folder.parent.mkdir()
    run.plan.folder.write_text("a file in its place")
    assert stop(run) == []
    assert "cannot write the result of" in caplog.text
