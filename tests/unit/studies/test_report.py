import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import plotly
import pytest

from slm_lab.charts import write
from slm_lab.metrics.reader import read_rows
from slm_lab.metrics.trial_metrics import SESSION_METRICS
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.baseline import NOT_MEASURED, RandomReturn
from slm_lab.studies.report import Reporter
from tests.support import parse, ppo
from tests.unit.charts.session import write_evaluations, write_session

SPEC = ppo(meta__max_session=2)
FINISHED = [SessionResult(session, Ending.FINISHED, 15_000) for session in range(2)]
WATCH = """
import json, sys
from pathlib import Path
import slm_lab.cli.run
from slm_lab.studies.baseline import RandomReturn
from slm_lab.studies.report import Reporter
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.spec.load import parse_spec
spec = parse_spec("small", json.loads(sys.argv[2]))
reporter = Reporter(spec, RunDir(Path(sys.argv[1]), "small"), 0)
reporter.draw_live()
sessions = [SessionResult(session, Ending.FINISHED, 15_000) for session in range(2)]
assert reporter.finish(sessions, RandomReturn(20.0)).problem is None
heavy = {"pandas", "matplotlib.pyplot", "torch", "tensorflow"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


RANDOM = RandomReturn(20.0, 40, 21.5)


def reporter(root):
    return Reporter(parse(SPEC), RunDir(root, "small"), 0)


@pytest.fixture
def root(tmp_path):
    """The folder of a run of two Sessions, the first of which was evaluated."""
    folder = tmp_path / "run"
    (folder / "info").mkdir(parents=True)
    run_dir = RunDir(folder, "small")
    for session in range(2):
        write_session(run_dir.session(0, session).rows, 30, seed=session)
    write_evaluations(run_dir.session(0, 0).eval_rows, 3)
    return folder


@pytest.mark.medium
def test_the_parent_of_a_training_loads_no_library_that_it_does_not_need(
    root, pictures_drawn
):
    code = [sys.executable, "-W", "error", "-c", WATCH, str(root), json.dumps(SPEC)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(root.rglob("*.png"))) == 10


@pytest.mark.medium
def test_metrics_rest_on_the_sessions_that_did_not_fail_and_graphs_on_all(root):
    failed = SessionResult(1, Ending.FAILED, 15_000, "an error")
    result = reporter(root).finish([FINISHED[0], failed], RANDOM)
    assert result.problem is None
    assert result.metrics.num_sessions == 1
    assert {result.metrics.rests_on[name] for name in SESSION_METRICS} == {1}
    page = root / "small_t0_trial_graph_mean_returns_vs_frames.html"
    assert "2 Sessions" in page.read_text()
    assert {path.name for path in (root / "info").glob("*session_metrics*")} == {
        "small_t0_s0_session_metrics_scalar_train.json",
        "small_t0_s0_session_metrics_scalar_eval.json",
    }


@pytest.mark.medium
def test_with_actors_and_learners_only_the_learners_count(tmp_path):
    """Two runs of two actors each: the Sessions 0 and 3 write, the others have no
    rows."""
    spec = parse(
        ppo(meta__distributed="actor_learner", meta__max_session=2, meta__max_run=2)
    )
    run_dir = RunDir(tmp_path, "small")
    (tmp_path / "info").mkdir()
    lines = [write_session(run_dir.session(0, s).rows, 30, seed=s) for s in (0, 3)]
    sessions = [SessionResult(session, Ending.FINISHED, 15_000) for session in range(6)]
    sessions[1] = replace(sessions[1], ending=Ending.FAILED, error="an actor died")
    result = Reporter(spec, run_dir, 0).finish(sessions, RANDOM)
    assert result.problem is None
    assert result.metrics.num_sessions == 2
    assert result.metrics.consistency is not None
    speeds = [
        rows["total_frame"][-1] / rows["wall_t"][-1] for rows in map(read_rows, lines)
    ]
    assert result.throughput.frames_per_s == pytest.approx(sum(speeds) / 2)
    page = (tmp_path / "small_t0_trial_graph_mean_returns_vs_frames.html").read_text()
    assert "1 std of 2 runs" in page
    assert "Sessions" not in page
    metrics = json.loads((tmp_path / "small_t0_trial_metrics_scalar.json").read_text())
    assert len(metrics["sessions"]) == 6
    assert {path.name[:11] for path in (tmp_path / "graph").iterdir()} == {
        "small_t0_s0",
        "small_t0_s3",
    }


@pytest.mark.medium
def test_a_training_in_which_all_failed_leaves_the_metrics_of_the_one_before(root):
    failed = [
        SessionResult(session, Ending.FAILED, 0, "an error") for session in range(2)
    ]
    file = root / "small_t0_trial_metrics_scalar.json"
    reporter(root).finish(failed, RANDOM)
    assert json.loads(file.read_text())["num_sessions"] == 0
    reporter(root).finish(FINISHED, RANDOM)
    before = file.read_bytes()
    reporter(root).finish(failed, RANDOM)
    assert file.read_bytes() == before


@pytest.mark.medium
@pytest.mark.parametrize(("frame", "drawn"), [(0, False), (100, True)])
def test_graphs_are_drawn_of_what_has_begun(root, frame, drawn):
    failed = [
        SessionResult(session, Ending.FAILED, frame, "an error") for session in range(2)
    ]
    result = reporter(root).finish(failed, NOT_MEASURED)
    assert (result.graphs != ()) == bool(list(root.rglob("*.png"))) == drawn


@pytest.mark.medium
@pytest.mark.parametrize("drawn", [0, 1, 3])
def test_no_graph_is_begun_after_a_stop_and_the_metrics_are_there(root, drawn):
    answers = iter([False] * drawn)
    result = reporter(root).finish(FINISHED, RANDOM, lambda: next(answers, True))
    assert (result.lacks_graphs, result.interrupted) == (True, True)
    assert len(list(root.rglob("*.png"))) == drawn
    assert len(result.graphs) == drawn
    assert json.loads((root / "small_t0_trial_metrics_scalar.json").read_text())[
        "num_sessions"
    ]


@pytest.mark.medium
def test_the_metrics_say_how_the_random_agent_was_measured_or_why_it_was_not(root):
    file = root / "small_t0_trial_metrics_scalar.json"
    reporter(root).finish(FINISHED, RANDOM)
    metrics = json.loads(file.read_text())
    measured = "random_return", "random_return_episodes", "random_episode_length"
    assert [metrics[name] for name in measured] == [*RANDOM[:3]]
    reporter(root).finish(FINISHED, RandomReturn(None, why="its port is taken"))
    metrics = json.loads(file.read_text())
    assert metrics["random_return"] is None
    for name in ("strength", "stability", "consistency"):
        assert metrics["reasons"][name] == "its port is taken"


@pytest.mark.medium
def test_on_a_nearly_full_disk_the_small_files_are_written_and_the_large_ones_are_not(
    root, monkeypatch
):
    script = os.path.getsize(
        Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    )
    free = SimpleNamespace(free=2 * script)
    monkeypatch.setattr(write.shutil, "disk_usage", lambda folder: free)
    done = reporter(root)
    done.draw_live()
    result = done.finish(FINISHED, RANDOM)
    assert "No space left on device" in result.problem
    assert len(list(root.glob("*_trial_metrics_scalar.json"))) == 1
    assert len(list(root.glob("info/*_metrics_scalar_*.json"))) == 3
    assert len(list(root.glob("*.png"))) == 8
    assert not list(root.parent.glob("plotly*"))
