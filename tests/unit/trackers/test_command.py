"""`--track` on the command line: a process beside the training."""

import importlib.util
import json
import os
import signal
from pathlib import Path

import pytest

from slm_lab.cli.main import _OF_RUN
from slm_lab.core.errors import MissingExtraError, UsageError
from slm_lab.metrics.reader import read_rows
from slm_lab.storage.run_dir import RunDir
from slm_lab.trackers.callbacks import check_trackers
from slm_lab.trackers.mlflow import MLflow
from slm_lab.trackers.process import TrackerProcess
from slm_lab.trackers.wandb import WandB
from tests.faults.lab import (
    NAME,
    call,
    command,
    command_line,
    lab,
    run_folder,
    started,
    wait_until,
    write_spec,
)
from tests.support import ppo
from tests.unit.records.runs import write_run

FAKES = Path(__file__).with_name("fakes")
FINISHED, KILLED, FAILED = 0, 255, 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKES), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    (tmp_path / "calls").touch()
    write_spec(tmp_path, ppo(meta__max_session=1))
    return tmp_path


def calls(folder, kind):
    lines = (folder / "calls").read_text().splitlines()
    return [call[1:] for call in map(json.loads, lines) if call[0] == kind]


def run(folder, mode="train", *options):
    return call(command(folder, mode, *options), folder)


def tracked_frames(folder):
    frames = [values["frame"] for _, values in calls(folder, "log") if "loss" in values]
    return sorted(frames)


def rows(folder):
    return read_rows(RunDir(run_folder(folder), NAME).session(0, 0).rows)


@pytest.mark.medium
def test_a_training_sends_rows_results_and_agent(folder):
    done = run(folder, "train", "--track", "wandb", "--tag", "first")
    assert (done.code, done.err) == (0, "")
    ((_, name, group, tags),) = calls(folder, "init")
    assert (name, group, tags) == (run_folder(folder).name,) * 2 + (["first"],)
    assert tracked_frames(folder) == rows(folder)["frame"].tolist()
    assert calls(folder, "finish") == [[name, FINISHED]]
    ((files,),) = calls(folder, "artifact")
    assert files[0].endswith(".zip")
    final = [s["final_return"] for (s,) in calls(folder, "summary")]
    assert final[-1] == pytest.approx(rows(folder)["final_return"][-1])


FAULTS = {
    "raises": "wandb: ConnectionError: no network; the training goes on",
    "exits": "wandb: its process ended early (exit code 3); the "
    "training goes on, and a resume sends the rest",
}
"""The line about each fault of a tracker."""


@pytest.mark.medium
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tracker_that_fails_changes_nothing_but_one_line(fault, folder, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", fault)
    done = run(folder, "train", "--track", "wandb")
    assert done.code == 0
    assert len(rows(folder)) == 10
    (line,) = done.err.splitlines()
    assert line.startswith(FAULTS[fault])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_of_trackers_that_is_killed_is_one_line(number, tmp_path, capfd):
    run_dir = write_run(tmp_path)
    with TrackerProcess(run_dir, ["wandb", "mlflow"], (), resumes=False) as trackers:
        os.kill(trackers._process.pid, number)
        trackers._process.wait()
    assert capfd.readouterr().err == (
        "wandb, mlflow: its process was killed by signal "
        f"{number.value}; the training goes on, and a resume sends the rest\n"
    )


def test_a_process_that_is_given_up_is_not_reported_as_killed(tmp_path, capfd):
    run_dir = write_run(tmp_path)
    trackers = TrackerProcess(run_dir, ["wandb"], (), resumes=False)
    os.kill(trackers._process.pid, signal.SIGSTOP)
    trackers._seconds = 0.1
    with trackers:
        pass
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("wandb: not all was sent in 0.1 s")


@pytest.mark.medium
@pytest.mark.slow
def test_a_resume_goes_on_with_the_same_trackers_until_none(folder):
    run(folder, "train", "--track", "wandb")
    larger = ["-s", "env.max_frame=2000", "--schedules", "hold"]
    done = run(folder, "train@latest", *larger)
    assert "tracked by wandb, as before; --track none ends that" in done.out
    ids = {identity for identity, *_ in calls(folder, "init")}
    assert len(ids) == 1
    assert tracked_frames(folder) == rows(folder)["frame"].tolist()
    assert rows(folder)["frame"][-1] == 2000
    before = (folder / "calls").read_text()
    largest = ["-s", "env.max_frame=3000", "--schedules", "hold"]
    for options in (["--track", "none", *largest], []):
        assert "tracked" not in run(folder, "train@latest", *options).out
    assert (folder / "calls").read_text() == before


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_process_ends_with_the_training(number, folder):
    write_spec(folder, ppo(meta__max_session=1, env__max_frame=10**8))
    with started(folder, "train", "--track", "wandb") as running:
        wait_until(lambda: calls(folder, "log"))
        followers = [c for c in running.children() if "follow" in command_line(c)]
        assert len(followers) == 1
        os.kill(running.pid, number)
        wait_until(lambda: calls(folder, "finish"))
        wait_until(lambda: not followers[0].is_running())
    expected = KILLED if number == signal.SIGINT else FAILED
    assert calls(folder, "finish")[-1][1] == expected


@pytest.mark.medium
@pytest.mark.slow
def test_each_trial_of_a_search_is_tracked_and_the_best_agent_is_sent(folder):
    search = {"agent.algorithm.gamma__choice": [0.9, 0.99]}
    spec = ppo(meta__max_session=1, meta__max_trial=2)
    write_spec(folder, {**spec, "search": search})
    done = run(folder, "search", "--track", "wandb")
    assert done.code == 0, done.err
    names = {name for _, name, *_ in calls(folder, "init")}
    assert names == {f"{run_folder(folder).name} t{i}" for i in range(2)}
    assert len(calls(folder, "artifact")) == 1
    assert len(tracked_frames(folder)) == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--track", "wanb"], "--track wanb: there is no callback named"),
        (["run", "eval@latest", "--track", "wandb"], "--track works only with train"),
        (["run", "--tag", "a=b"], "tag 'a=b': must have"),
        (["benchmark", "--track", "wandb"], "it is an option of slm-lab run"),
        (["compare", "--track", "wandb"], "it is an option of slm-lab run"),
    ],
)
def test_a_wrong_use_is_refused_before_anything_starts(words, message, tmp_path):
    done = lab(tmp_path, *words)
    assert done.code == 2
    plain = " ".join(done.err.replace("│", " ").split())
    assert message in plain
    assert not (tmp_path / "data").exists()
    assert "track" in _OF_RUN


@pytest.mark.parametrize("kind", [WandB, MLflow])
def test_a_tracker_that_is_not_installed_is_one_line_with_its_extra(kind, monkeypatch):
    monkeypatch.setattr(kind, "module", "not_installed_at_all")
    with pytest.raises(MissingExtraError) as error:
        check_trackers([kind.name])
    assert str(error.value) == (
        f"--track {kind.name}: not_installed_at_all is not installed; run: "
        f'pip install "slm-lab[{kind.name}]"'
    )


def test_an_unknown_tracker_is_told_the_nearest():
    with pytest.raises(UsageError, match="did you mean mlflow"):
        check_trackers(["mlfow"])


@pytest.mark.medium
@pytest.mark.filterwarnings("default")
def test_the_real_libraries_get_every_row(tmp_path, monkeypatch):
    """MLflow with a local database, W&B offline."""
    for library in ("wandb", "mlflow"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"needs the extra {library}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    write_spec(tmp_path, ppo(meta__max_session=2))
    done = run(tmp_path, "train", "--track", "wandb", "--track", "mlflow")
    assert (done.code, done.err) == (0, "")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == NAME]
    tracked = client.search_runs([experiment.experiment_id])
    assert len(tracked) == 3
    assert {each.info.status for each in tracked} == {"FINISHED"}
    child = next(each for each in tracked if each.info.run_name.endswith("s0"))
    history = client.get_metric_history(child.info.run_id, "fps")
    frames = sorted({point.step for point in history})
    assert frames == rows(tmp_path)["frame"].tolist()
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 3
