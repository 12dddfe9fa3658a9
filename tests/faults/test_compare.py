"""`slm-lab compare` from beginning to end: real trainings, stopped and resumed."""

import csv

import pytest

from slm_lab.records.event_log import StudyState
from slm_lab.storage.run_dir import RunDir
from tests.faults.lab import (
    LAB,
    NAME,
    call,
    interrupt,
    repeatable,
    started_as,
    wait_until,
    write_spec,
)
from tests.support import actor_critic

SPEC = actor_critic(
    agent__net__optim_spec={"name": "Adam", "lr": 1e-3},
    env__max_frame=2000,
    meta__random_seed=5,
)


def compare(folder, *options):
    """The command on the spec in `folder`."""
    data = ["--data", str(folder / "data")]
    return [str(LAB), "compare", str(folder / "spec.json"), NAME, *data, *options]


def comparison_folder(folder):
    (found,) = (folder / "data").glob(f"{NAME}_compare_*")
    return found


def table(folder, which):
    (file,) = comparison_folder(folder).glob(f"{NAME}_compare{which}_df.csv")
    return list(csv.DictReader(file.read_text().splitlines()))


def trainings(folder):
    """The states of the trainings, in order."""
    (file,) = comparison_folder(folder).glob("*_compare.jsonl")
    return list(StudyState.from_log(file).trials.values())


def rows(folder, trial, name):
    """What the only Session of a training has written, less what time decides."""
    run = comparison_folder(folder) / trainings(folder)[trial].folder
    return repeatable(RunDir(run, name).session(0, 0).rows)


@pytest.mark.slow
def test_a_comparison_trains_and_draws_every_variant(folder):
    write_spec(folder, SPEC)
    options = [
        "--modes",
        "synced",
        "--workers",
        "1,2",
        "--seeds",
        "1",
        "--threshold",
        "15",
    ]
    done = call(compare(folder, *options), folder)
    assert done.outcome == (0, "")
    assert "[2/3] synced × 1, seed 5" in done.out
    assert "Adam replaced by GlobalAdam" in done.out
    lines = table(folder, "")
    assert [(line["mode"], line["workers"]) for line in lines] == [
        ("false", "1"),
        ("synced", "1"),
        ("synced", "2"),
    ]
    for line in lines:
        assert float(line["frames_per_s"]) > 0
        assert float(line["speed_up"]) > 0
        assert 0 < float(line["frames_to_threshold"]) <= 2000
        assert float(line["cpu_seconds_to_threshold"]) > 0
    assert all(
        2000 <= float(line["total_frame"]) <= 2008
        for line in table(folder, "_trainings")
    )
    assert rows(folder, 0, f"{NAME}_false")
    again = call(
        [str(LAB), "compare", "--resume", str(comparison_folder(folder))], folder
    )
    assert again.outcome == (0, "")
    assert "0 of them to run" in again.out


@pytest.mark.slow
def test_a_stopped_comparison_shows_finished_runs_and_resuming_completes_the_rest(
    folder,
):
    write_spec(folder, {**SPEC, "env": {**SPEC["env"], "max_frame": 20_000}})
    options = ["--modes", "shared", "--workers", "1", "--seeds", "1"]
    with started_as(folder, compare(folder, *options)) as running:
        wait_until(lambda: list(folder.glob("data/*/*shared_1*/info/*_train.csv")))
        interrupt(running)
        done = running.end()
    assert done.code == 130, done.err
    assert "resume with: slm-lab compare --resume" in done.out
    assert [line["finished"] for line in table(folder, "")] == ["1", "0"]
    assert [state.status for state in trainings(folder)] == ["finished", "running"]
    done = call(
        [str(LAB), "compare", "--resume", str(comparison_folder(folder))], folder
    )
    assert done.outcome == (0, "")
    assert "1 of them to run" in done.out
    assert [line["finished"] for line in table(folder, "")] == ["1", "1"]
    (resumed,) = comparison_folder(folder).glob("*shared_1*/")
    assert resumed.name == trainings(folder)[1].folder
