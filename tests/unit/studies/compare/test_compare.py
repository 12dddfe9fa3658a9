"""The trainings of a comparison: their order, failures and stops.

A training here is a stand-in that writes rows; the real ones are in tests/faults.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from slm_lab.charts.speeds import summary_table
from slm_lab.core.errors import LabError, UsageError
from slm_lab.metrics.trial_metrics import throughput, trial_metrics
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import load_spec
from slm_lab.spec.override import Setting
from slm_lab.storage.result import Ending, SessionResult, TrialResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.compare import run as run_module
from slm_lab.studies.compare.modes import CompareRequest, make_plan
from slm_lab.studies.compare.plan import Variant
from slm_lab.studies.compare.run import CompareRun
from tests.support import ppo

BUDGET = 1000
LAM = "agent.algorithm.lam"
DONE = Ending.FINISHED
STOP = Ending.INTERRUPTED
FAIL = Ending.FAILED


class Stand:
    """In place of a PreparedRun: records its calls, decides how its trainings end."""

    def __init__(self):
        self.asked = []
        self.endings = []
        """How the next trainings end; later ones finish."""
        self.refuses = None
        self.error = "no more memory"

    def __call__(self, source):
        self.asked.append((source.name(), source.seed, source.run is not None))
        if self.refuses is not None:
            raise self.refuses
        ending = self.endings.pop(0) if self.endings else DONE
        return StandRun(source, ending, self.error)


class StandRun:
    notes = ()

    def __init__(self, source, ending, error):
        self.error = error if ending is FAIL else None
        self.spec = load_spec(source.spec_file, source.spec_name)
        self.ending = ending
        name = self.spec.name
        root = source.data_dir / (source.run or f"{name}_run_{source.seed}")
        self.task = SimpleNamespace(folder=root.name)
        self.run_dir = RunDir(root, name)
        (root / "info").mkdir(parents=True, exist_ok=True)
        saved = json.dumps({name: self.spec.to_json()})
        self.run_dir.spec_file.write_text(saved)
        self.run_dir.trial_spec_file(0).write_text(saved)

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
        sessions = tuple(
            SessionResult(session, self.ending, BUDGET // workers, self.error)
            for session in writers
        )
        return TrialResult(sessions, trial_metrics([], None), throughput([], []), ())


@pytest.fixture
def stand(monkeypatch):
    stand = Stand()
    monkeypatch.setattr(run_module, "PreparedRun", stand)
    monkeypatch.setattr(run_module, "draw_comparison", lambda *args: [])
    return stand


@pytest.fixture
def begin(tmp_path, stand):
    """Begins a comparison of one process with a mode."""

    def make(mode="synced", workers=1, seeds=1, **options):
        file, data = tmp_path / "spec.json", tmp_path / "data"
        file.write_text(json.dumps({"small": ppo(env__max_frame=BUDGET)}))
        source = RunSource(str(file), data_dir=data)
        request = CompareRequest(source, (mode,), (workers,), seeds, **options)
        return CompareRun.begin(make_plan(request), data)

    return make


@pytest.fixture
def run(begin):
    """A comparison of one process with two workers, under two seeds."""
    return begin(workers=2, seeds=2, threshold=500.0)


def train(run, stand, *endings, opens=lambda planned: None):
    """Trains until all is done, or one of the `endings` is a stop."""
    stand.endings = list(endings)
    run.run(opens, lambda planned, run: run.start(lambda status_board: None))
    is_stopped = run.study.stopping and run.study.problem is None
    assert is_stopped == (STOP in endings)


def reopened(run):
    """The same comparison in another process."""
    run._lock.release()
    return CompareRun.resume(run.folder)


def finished(results):
    return summary_table(results.comparison())["finished"].tolist()


def test_all_variants_train_under_one_seed_before_any_trains_under_the_next(run, stand):
    opened = []
    train(run, stand, opens=lambda planned: opened.append(planned.label))
    assert stand.asked == [
        ("small_false", 0, False),
        ("small_synced_2", 0, False),
        ("small_false", 1, False),
        ("small_synced_2", 1, False),
    ]
    assert opened[:2] == ["one process, seed 0", "synced × 2, seed 0"]
    assert run.to_run == []


def test_variants_may_differ_in_any_key_and_are_trained_and_resumed_by_label(
    run, stand, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_module, "write_tables", lambda *args: [])
    base = run.plan.baseline
    variants = [
        Variant(f"λ = {lam}", f"small_{lam}", (Setting(LAM, lam),)) for lam in (0.9, 1)
    ]
    specs = {variant.label: variant.parse(base).spec for variant in variants}
    both = CompareRun.begin(run.plan._replace(specs=specs), tmp_path / "other")
    train(both, stand, DONE, STOP)
    stand.asked.clear()
    later = reopened(both)
    assert [planned.label for planned in later.to_run] == [
        "λ = 1, seed 0",
        "λ = 0.9, seed 1",
        "λ = 1, seed 1",
    ]
    assert [spec.agent.algorithm.lam for spec in later.plan.specs.values()] == [0.9, 1]
    train(later, stand)
    assert [name for name, *_ in stand.asked] == ["small_1", "small_0.9", "small_1"]


def test_measurements_equal_the_values_of_the_rows(run, stand):
    train(run, stand)
    alone, together = summary_table(run.results.comparison()).itertuples()
    assert (alone.frames_per_s, together.frames_per_s) == (100.0, 200.0)
    assert together.speed_up == 2.0
    assert (alone.finished, together.finished) == (2, 2)
    assert together.cpu_seconds_to_threshold == together.seconds_to_threshold


def test_frames_per_process_count_each_actor_and_not_the_learner(begin, stand):
    run = begin("actor_learner", workers=4)
    train(run, stand)
    outcomes = run.results.comparison().outcomes
    alone, from_actors = (outcome.trainings[0] for outcome in outcomes)
    np.testing.assert_array_equal(alone.frame, alone.total_frame)
    np.testing.assert_array_equal(from_actors.frame, from_actors.total_frame / 4)
    assert (from_actors.frames, from_actors.seconds) == (alone.frames, alone.seconds)
    assert from_actors.cores_used == alone.cores_used


def test_a_failure_is_noted_and_the_others_continue(run, stand):
    train(run, stand, FAIL)
    ((planned, why),) = run.failures
    assert (planned.label, why) == ("one process, seed 0", "Session 0: no more memory")
    result = run.results.comparison().outcomes[0]
    assert (set(result.trainings), result.failures) == ({1}, {0: why})
    assert "3 of 4 trainings" in run.results.comparison().notes[-1]
    later = reopened(run)
    train(later, stand)
    assert later.failures == []
    assert finished(later.results) == [2, 2], (
        "a resumed comparison trains anew what failed"
    )


def test_a_training_whose_rows_are_damaged_is_left_out(run, stand):
    train(run, stand)
    rows = run.folder / "small_false_run_1/info/small_false_t0_s0_session_df_train.csv"
    rows.write_text("frame,total_frame\n100,not a number\n")
    later = reopened(run)
    assert finished(later.results) == [1, 2]
    ((number, why),) = later.results.damaged.items()
    assert later.planned[number].label == "one process, seed 1"
    assert rows.name in why


def test_a_run_that_cannot_begin_is_a_failure_too(run, stand):
    stand.refuses = LabError("no semaphores")
    train(run, stand)
    assert {why for _, why in run.failures} == {"no semaphores"}
    assert len(run.failures) == 4


def test_a_full_disk_stops_the_comparison(run, stand):
    stand.error = "No space left on device"
    train(run, stand, FAIL)
    problem = "one process, seed 0: Session 0: No space left on device"
    assert run.study.problem == problem
    assert len(stand.asked) == 1


def test_resuming_completes_missing_trainings_in_existing_folders(run, stand):
    train(run, stand, DONE, STOP)
    assert finished(run.results) == [1, 0], "a stopped training is not measured"
    stand.asked.clear()
    later = reopened(run)
    assert [planned.number for planned in later.to_run] == [1, 2, 3]
    train(later, stand)
    assert stand.asked == [
        ("small_synced_2", None, True),
        ("small_false", 1, False),
        ("small_synced_2", 1, False),
    ]
    folders = [path.name for path in run.folder.iterdir() if path.is_dir()]
    assert len(folders) == 4, "the one that was stopped went on in its own folder"
    assert finished(later.results) == [2, 2]


def test_a_training_that_was_killed_before_it_wrote_anything_restarts(run, stand):
    train(run, stand, STOP)
    (run.folder / "small_false_run_0" / "small_spec.json").unlink(missing_ok=True)
    for file in run.folder.glob("small_false_run_0/*_spec.json"):
        file.unlink()
    train(reopened(run), stand)
    assert stand.asked[:2] == [("small_false", 0, False)] * 2


def entry(folder, ending, error=None):
    return {
        "folder": folder,
        "ending": ending,
        "error": error,
        "would_repeat": False,
    }


def earlier(run, **changes):
    """Replaces the log by the record of an earlier version: two trainings begun."""
    (run.folder / "small_compare.jsonl").unlink(missing_ok=True)
    record = {
        "small_false seed 0": entry("small_false_run_0", "finished"),
        "small_synced_2 seed 0": entry("small_synced_2_run_0", None),
        "small_false seed 1": entry("", "failed", "no room"),
        **changes,
    }
    file = run.folder / "small_compare_record.json"
    file.write_text(json.dumps(record))


def test_the_record_of_an_earlier_version_is_read_and_resumed(run, stand):
    train(run, stand, DONE, STOP)
    earlier(run)
    stand.asked.clear()
    later = reopened(run)
    assert finished(later.results) == [1, 0]
    assert [why for _, why in later.failures] == ["no room"]
    train(later, stand)
    assert stand.asked == [
        ("small_synced_2", None, True),
        ("small_false", 1, False),
        ("small_synced_2", 1, False),
    ]
    assert finished(reopened(later).results) == [2, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"small_false seed 9": entry("a", None)}, "is damaged"),
        ({"small_false seed 0": {}}, "is damaged"),
        ({"small_false seed 0": entry("../a", None)}, "name of a folder beside it"),
    ],
)
def test_a_damaged_record_is_refused(run, changes, words):
    earlier(run, **changes)
    with pytest.raises(UsageError, match=words):
        reopened(run)


def test_only_one_process_works_in_a_comparison(run):
    with pytest.raises(UsageError, match="process"):
        CompareRun.resume(run.folder)


def test_the_return_of_the_random_agent_is_taken_from_what_is_known(tmp_path, begin):
    data = tmp_path / "data"
    data.mkdir()
    (data / "random_returns.json").write_text('{"known": 1.0}')
    run = begin()
    assert (run.folder / "random_returns.json").read_text() == '{"known": 1.0}'
