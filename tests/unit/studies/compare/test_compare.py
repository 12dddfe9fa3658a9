"""The trainings of a comparison: their order, failures and stops.

A training here is a stand-in that writes rows; the real ones are in tests/faults.
"""

import json

import numpy as np
import pytest

from slm_lab.charts.speeds import summary_table
from slm_lab.core.errors import LabError, UsageError
from slm_lab.metrics.trial_metrics import throughput, trial_metrics
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import load_spec
from slm_lab.storage.result import Ending, SessionResult, TrialResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies import compare
from slm_lab.studies.compare import CompareRequest, CompareRun
from tests.support import ppo

BUDGET = 1000


class Stand:
    """Stands in for a Run: records its calls, and decides how its trainings end."""

    def __init__(self):
        self.asked = []
        self.ending = Ending.FINISHED
        self.refuses = None

    def __call__(self, source):
        self.asked.append((source.spec_name, source.seed, source.run is not None))
        if self.refuses is not None:
            raise self.refuses
        return StandRun(source, self)


class StandRun:
    notes = ()

    def __init__(self, source, stand):
        self.spec = load_spec(source.spec_file, source.spec_name)
        self.ending = stand.ending
        root = source.data_dir / (source.run or f"{source.spec_name}_run_{source.seed}")
        self.run_dir = RunDir(root, source.spec_name)
        (root / "info").mkdir(parents=True, exist_ok=True)
        saved = {self.spec.name: self.spec.to_json()}
        self.run_dir.spec_file.write_text(json.dumps(saved))

    def start(self, on_tick):
        writers = self.spec.meta.writers
        workers = len(writers)
        for session in writers:
            rows = [
                f"{frame},{frame * workers},{frame / 100},{frame / 200},"
                f"{frame},{frame},{frame}"
                for frame in range(100, BUDGET // workers + 1, 100)
            ]
            header = "frame,total_frame,wall_t,cpu_t,epi,mean_return,final_return"
            self.run_dir.session(0, session).rows.write_text(
                "\n".join([header, *rows, ""])
            )
        error = "no more memory" if self.ending is Ending.FAILED else None
        sessions = tuple(
            SessionResult(session, self.ending, BUDGET // workers, error)
            for session in writers
        )
        return TrialResult(sessions, trial_metrics([], None), throughput([], []), ())


@pytest.fixture
def stand(monkeypatch):
    stand = Stand()
    monkeypatch.setattr(compare, "Run", stand)
    return stand


@pytest.fixture
def begin(tmp_path, stand):
    """Begins a comparison of one process with a mode."""

    def make(mode="synced", workers=1, seeds=1, **options):
        file, data = tmp_path / "spec.json", tmp_path / "data"
        file.write_text(json.dumps({"small": ppo(env__max_frame=BUDGET)}))
        source = RunSource(str(file), data_dir=data)
        return CompareRun.begin(
            CompareRequest(source, (mode,), (workers,), seeds, **options)
        )

    return make


@pytest.fixture
def run(begin):
    """A comparison of one process with two workers, under two seeds."""
    return begin(workers=2, seeds=2, threshold=500.0)


def go_on(run, number):
    """Trains the next few; returns how they ended."""
    endings = []
    for planned in run.to_run[:number]:
        training = run.prepare(planned)
        assert training is not None
        endings.append(run.train(planned, training, lambda board: None))
    return endings


def reopened(run):
    """The same comparison in another process."""
    run._lock.release()
    return CompareRun.resume(run.folder)


def test_all_variants_train_under_one_seed_before_any_trains_under_the_next(run, stand):
    go_on(run, 9)
    assert stand.asked == [
        ("small_false", 0, False),
        ("small_synced_2", 0, False),
        ("small_false", 1, False),
        ("small_synced_2", 1, False),
    ]
    assert run.to_run == []


def test_measurements_equal_the_values_of_the_rows(run):
    go_on(run, 9)
    alone, together = summary_table(run.comparison()).itertuples()
    assert (alone.frames_per_s, together.frames_per_s) == (100.0, 200.0)
    assert together.speed_up == 2.0
    assert (alone.finished, together.finished) == (2, 2)
    assert together.cpu_seconds_to_threshold == together.seconds_to_threshold


def test_frames_per_process_count_each_actor_and_not_the_learner(begin):
    run = begin("actor_learner", workers=4)
    assert go_on(run, 2) == [Ending.FINISHED] * 2
    alone, from_actors = (each.trainings[0] for each in run.comparison().outcomes)
    np.testing.assert_array_equal(alone.frame, alone.total_frame)
    np.testing.assert_array_equal(from_actors.frame, from_actors.total_frame / 4)
    assert (from_actors.frames, from_actors.seconds) == (alone.frames, alone.seconds)
    assert from_actors.cores_used == alone.cores_used


def test_a_failure_is_noted_and_the_others_continue(run, stand):
    stand.ending = Ending.FAILED
    assert go_on(run, 1) == [Ending.FAILED]
    stand.ending = Ending.FINISHED
    for planned in run.to_run[1:]:
        run.train(planned, run.prepare(planned), lambda board: None)
    ((planned, why),) = run.failures
    assert (planned.label, why) == ("one process, seed 0", "no more memory")
    outcome = run.comparison().outcomes[0]
    assert (set(outcome.trainings), outcome.failures) == ({1}, {0: "no more memory"})
    assert "3 of 4 trainings" in run.comparison().notes[-1]


def test_a_run_that_cannot_begin_is_a_failure_too(run, stand):
    stand.refuses = LabError("no room in shared memory")
    assert run.prepare(run.to_run[0]) is None
    ((_, why),) = run.failures
    assert why == "no room in shared memory"


@pytest.mark.medium
def test_a_stopped_training_is_not_measured_but_can_be_drawn(run, stand):
    go_on(run, 1)
    stand.ending = Ending.INTERRUPTED
    assert go_on(run, 1) == [Ending.INTERRUPTED]
    alone, together = summary_table(run.comparison()).itertuples()
    assert (alone.finished, together.finished, together.failed) == (1, 0, 0)
    assert all(path.stat().st_size for path in run.draw())


def test_resuming_completes_missing_trainings_in_existing_folders(run, stand):
    go_on(run, 1)
    stand.ending = Ending.INTERRUPTED
    go_on(run, 1)
    stand.ending = Ending.FINISHED
    stand.asked.clear()
    later = reopened(run)
    go_on(later, 9)
    assert stand.asked == [
        ("small_synced_2", None, True),
        ("small_false", 1, False),
        ("small_synced_2", 1, False),
    ]
    folders = [path.name for path in run.folder.iterdir() if path.is_dir()]
    assert len(folders) == 4, "the one that was stopped went on in its own folder"
    assert summary_table(later.comparison())["finished"].tolist() == [2, 2]


def test_a_training_that_was_killed_before_it_wrote_anything_restarts(run, stand):
    training = run.prepare(run.to_run[0])
    training.run_dir.spec_file.unlink()
    later = reopened(run)
    go_on(later, 1)
    assert stand.asked[-1] == ("small_false", 0, False)


def test_only_one_process_works_in_a_comparison(run):
    with pytest.raises(UsageError, match="process"):
        CompareRun.resume(run.folder)


def test_the_return_of_the_random_agent_is_taken_from_what_is_known(tmp_path, begin):
    data = tmp_path / "data"
    data.mkdir()
    (data / "random_returns.json").write_text('{"known": 1.0}')
    run = begin()
    assert (run.folder / "random_returns.json").read_text() == '{"known": 1.0}'


def test_two_comparisons_in_the_same_second_have_separate_folders(begin):
    folders = {begin().folder for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.name.startswith("small_compare_") for folder in folders)
