"""Findings on how a run ended, its returns, dead units, and the machine."""

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.core import process
from slm_lab.core.errors import UsageError
from slm_lab.doctor import diagnosis as outcome
from slm_lab.doctor import machine
from slm_lab.doctor.history import SessionHistory
from slm_lab.doctor.measured import FiredUnits, dead_relus
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.records.lookup import find_trials
from slm_lab.records.run_record import RunRecord
from slm_lab.storage.result import Ending, SessionResult
from tests.support import ppo
from tests.unit.records.runs import write_run


@pytest.fixture
def trial(tmp_path):
    write_run(
        tmp_path,
        ppo(meta__max_session=3, env__max_frame=4000),
        stamp="2026_11_22_030000",
    )
    return find_trials("small_2026_11_22_030000", tmp_path)[0]


def rows(last_return=100.0, num=40, frames=4000.0):
    columns = {name: np.full(num, np.nan) for name in BASE_COLUMNS}
    columns["total_frame"] = np.linspace(frames / num, frames, num)
    columns["mean_return"] = columns["final_return"] = np.linspace(0, last_return, num)
    return Rows(tuple(columns), np.stack(list(columns.values())))


def end(ending=Ending.FINISHED, session=0, **about):
    return SessionResult(session, ending, 4000, **about)


def case(
    trial, *ends, finals=(100.0, 101.0, 99.0), training=False, frames=4000.0, **metrics
):
    histories = {
        s: SessionHistory(rows(value, frames=frames), trial.spec)
        for s, value in enumerate(finals)
    }
    results = [] if ends == (None,) else ends or (end(),)
    metrics = {"final_return_episodes": 20, **metrics}
    return with_facts(trial, metrics, results, training), histories


def with_facts(trial, metrics, results, is_training=False):
    """The record of a trial, in which it has read these facts."""
    record = RunRecord(trial.run_dir)
    record.metrics, record.results = metrics, results
    record.is_training = is_training
    return record


def found_by(finding, seen):
    return next(finding(*seen), None)


def test_a_successful_run_has_no_findings(trial):
    every = (*outcome.ENDINGS, *outcome.RESULTS, outcome.weak_claim)
    healthy = case(trial, final_return=100.0, random_return=20.0)
    assert [finding for each in every for finding in each(*healthy)] == []


def test_advice_on_a_shared_run_names_its_file(trial, tmp_path):
    archive = tmp_path / "shared.zip"
    shared = RunRecord(trial.run_dir, archive=archive)
    shared.metrics = {"final_return_episodes": 2}
    shared.results = [end(Ending.INTERRUPTED)]
    shared.is_training = False
    histories = {0: SessionHistory(rows(frames=100.0), trial.spec)}
    stopped = found_by(outcome.unfinished, (shared, histories))
    assert "where it was trained" in stopped.advice
    few = found_by(outcome.weak_claim, (shared, histories))
    assert f"eval@{archive}" in few.advice


def test_a_failure_is_given_with_its_reason_and_a_resume(trial):
    broken = end(
        Ending.FAILED, error="Traceback (most recent call last):\n  x\nValueError: no"
    )
    found = found_by(outcome.failed, case(trial, broken, end()))
    assert found.what == "1 of 2 Sessions failed"
    assert found.evidence == "Session 0 at frame 4,000: ValueError: no"
    assert f"slm-lab run train@{trial.run_dir.root}" in found.advice
    assert found_by(outcome.failed, case(trial, broken, training=True)) is None


@pytest.mark.parametrize(
    ("diverged", "change"), [(True, "optim_spec.lr"), (False, "the cause")]
)
def test_a_resume_that_would_repeat_a_failure_is_advised_against(
    trial, diverged, change
):
    ended = end(Ending.FAILED, error="no", would_repeat=True, diverged=diverged)
    found = found_by(outcome.failed, case(trial, ended))
    assert "do not resume it" in found.advice
    assert change in found.advice


def test_sessions_that_only_lost_a_peer_are_not_the_cause(trial):
    lost = end(Ending.FAILED, 1, error="lost its peers", lost_others=True)
    cause = end(Ending.FAILED, 2, error="the disk is full")
    assert found_by(outcome.failed, case(trial, lost, cause)).evidence.startswith(
        "Session 2 at"
    )


@pytest.mark.parametrize(
    ("kills", "words"),
    [(0, "killed by signal 9"), (2, "has killed 2 processes for memory")],
)
def test_an_out_of_memory_kill_is_detected_by_the_kernels_counters(
    trial, kills, words, monkeypatch
):
    monkeypatch.setattr(outcome, "memory_kills", lambda: kills)
    killed = case(trial, end(Ending.FAILED, exit_code=-9, error="it died"))
    assert words in found_by(outcome.failed, killed).evidence


def test_a_run_without_a_recorded_ending_was_killed(trial, monkeypatch):
    monkeypatch.setattr(outcome, "memory_kills", lambda: 0)
    found = found_by(outcome.unfinished, case(trial, None, frames=1000.0))
    assert (found.what, found.evidence) == (
        "it ended silently: it was killed",
        "1,000 of 4,000 frames",
    )
    assert (
        found_by(outcome.unfinished, case(trial, None, frames=1000.0, training=True))
        is None
    )


def test_a_run_killed_after_one_of_its_seeds_was_complete_was_killed(
    trial, monkeypatch
):
    monkeypatch.setattr(outcome, "memory_kills", lambda: 0)
    record, histories = case(trial, None)
    histories[1] = SessionHistory(rows(frames=1000.0), trial.spec)
    found = found_by(outcome.unfinished, (record, histories))
    assert found.what == "it ended silently: it was killed"
    assert found.evidence == "1,000 of 4,000 frames"


def test_a_trial_of_a_search_is_resumed_with_its_search(trial, monkeypatch):
    monkeypatch.setattr(outcome, "memory_kills", lambda: 0)
    record, histories = case(trial, None, frames=1000.0)
    record.run_dir.event_log_file.touch()
    found = found_by(outcome.unfinished, (record, histories))
    assert f"slm-lab run search@{trial.folder}" in found.advice


def test_resuming_is_advised_for_a_stopped_run(trial):
    found = found_by(
        outcome.unfinished, case(trial, end(Ending.INTERRUPTED), frames=1000.0)
    )
    assert found.what == "it was stopped before its end"
    assert "slm-lab run train@" in found.advice


def test_without_rows_there_are_no_findings(trial):
    found = found_by(outcome.no_rows, case(trial, None, finals=()))
    assert (found.what, found.evidence) == (
        "no rows yet",
        "a row is due every 100 frames",
    )


@pytest.mark.parametrize(
    ("result", "random", "is_ill"),
    [
        (20.5, 20.0, True),
        (60.0, 20.0, False),
        (-500.0, -499.0, True),
        (-90.0, -499.0, False),
    ],
)
def test_a_result_of_random_actions_is_noticed(trial, result, random, is_ill):
    found = found_by(
        outcome.no_better_than_random,
        case(trial, final_return=result, random_return=random),
    )
    assert (found is not None) is is_ill


@pytest.mark.parametrize(
    ("finals", "words"),
    [
        ((100.0, 101.0, 30.0), "Session 2: 30"),
        ((100.0, 60.0, 30.0), None),
        ((100.0, 1.0), None),
    ],
)
def test_an_outlier_session_is_reported(trial, finals, words):
    found = found_by(outcome.apart, case(trial, finals=finals))
    assert words in found.evidence if words else found is None


def test_a_claim_needs_rows_seeds_and_episodes(tmp_path):
    write_run(tmp_path, ppo(), stamp="2026_11_22_030000")
    (alone,) = find_trials("small_2026_11_22_030000", tmp_path)
    found = found_by(
        outcome.weak_claim, case(alone, finals=(100.0,), final_return_episodes=4)
    )
    assert found.evidence == "1 of at least 3 seeds, 4 of at least 20 episodes"
    advice = "raise meta.max_session in a new run; play more: slm-lab run eval@"
    assert found.advice.startswith(advice)


def test_more_episodes_are_no_advice_for_too_few_seeds(tmp_path):
    write_run(tmp_path, ppo(), stamp="2026_11_22_030000")
    (alone,) = find_trials("small_2026_11_22_030000", tmp_path)
    enough = case(alone, finals=(100.0,), final_return_episodes=400)
    found = found_by(outcome.weak_claim, enough)
    assert found.advice == "raise meta.max_session in a new run"


def test_a_spec_key_of_another_version_is_no_finding():
    assert (
        SessionHistory(rows(), {"agent": {"net": None}}).key("agent.net.optim_spec.lr")
        is None
    )


@pytest.mark.parametrize(
    "make", [torch.relu, torch.relu_, nn.functional.relu, nn.ReLU()]
)
def test_dead_units_are_counted(make):
    x = torch.tensor([[1.0, -1.0, 0.0, -2.0], [-1.0, 3.0, 0.0, -2.0]])
    with torch.inference_mode(), FiredUnits() as noted:
        make(x.clone())
    assert [fired.tolist() for fired in noted.fired] == [[True, True, False, False]]


def test_a_channel_of_a_convolution_is_a_unit():
    x = torch.zeros(2, 3, 4, 4)
    x[1, 2, 0, 0] = 1.0
    with FiredUnits() as noted:
        torch.relu(x)
    assert noted.fired[0].tolist() == [False, False, True]


def test_a_layer_with_mostly_dead_units_is_a_finding():
    (finding,) = dead_relus([0.1, 0.9], {})
    assert finding.evidence == "by layer 10%, 90% never fire"
    assert not any(dead_relus([0.1, 0.7], {}))
    assert not any(dead_relus([], {}))


@pytest.mark.parametrize(
    ("content", "kills"),
    [("oom 3\noom_kill 2\noom_group_kill 0\n", 2), ("oom 0\n", 0), (None, 0)],
)
def test_the_kernel_counts_processes_killed_for_memory(
    content, kills, tmp_path, monkeypatch
):
    counter = tmp_path / "memory.events"
    monkeypatch.setattr(process, "COUNTERS", (counter,))
    if content is not None:
        counter.write_text(content)
    assert process.memory_kills() == kills


def test_a_full_disk_and_little_shared_memory_are_reported(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 2**20})
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: usage)
    advice = {part.name: part.advice for part in machine.examine(tmp_path / "data")}
    assert "slm-lab tidy" in advice["disk"]
    assert "--shm-size" in advice["shared memory"]
    assert advice["Python"] == advice["torch"] == ""


def test_an_extra_whose_simulator_does_not_import_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        machine, "find_spec", lambda name: None if name == "Box2D" else machine
    )
    found = {part.name: part.found for part in machine.examine(tmp_path)}
    assert "box2d" not in found["extras"]
    assert "box2d" in found["extras not installed"].split(", ")


def test_a_complete_training_without_metrics_is_a_finding(trial):
    histories = {0: SessionHistory(rows(), trial.spec)}
    unwritten = with_facts(trial, {}, []), histories
    assert (
        found_by(outcome.unfinished, unwritten).what
        == "its metrics are missing or damaged"
    )


def test_missing_rows_of_a_finished_session_are_reported(trial):
    histories = {0: SessionHistory(rows(), trial.spec)}
    gone = with_facts(trial, {"a": 1}, (end(), end(session=1))), histories
    found = found_by(outcome.no_rows, gone)
    assert found.what == "rows of finished Sessions are gone"
    assert "t0_s1_session_df_train.csv" in found.evidence
    assert "t0_s0" not in found.evidence


@pytest.mark.parametrize(
    ("sessions", "why"),
    [
        ('[{"session": 0, "ending": "failed", "error": 3}]', "valid string"),
        ("[3]", "mapping"),
    ],
)
def test_damaged_results_of_sessions_are_one_line(trial, sessions, why):
    trial.run_dir.trial_metrics_file(0).write_text(f'{{"sessions": {sessions}}}')
    with pytest.raises(
        UsageError, match=f"its metrics cannot be read: sessions: .*{why}$"
    ):
        _ = trial.results
