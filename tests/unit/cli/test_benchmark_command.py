"""`slm-lab benchmark`: trainings, what continues, bounds, and bad input."""

import json

import pytest

from slm_lab.records.training_record import read_records, write_record
from tests.faults.lab import (
    LAB,
    NAME,
    call,
    interrupt,
    lab,
    started_as,
    wait_until,
    write_spec,
)
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input
from tests.unit.studies.benchmark.records import record

SUITE = f"""
seeds: [5, 6]
episodes: 2
runs:
  - specs: [spec.json {NAME}]
    bound: 5
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a spec and the suite that trains it with two seeds."""
    write_spec(tmp_path, ppo(env__max_frame=600))
    (tmp_path / "suite.yaml").write_text(SUITE)
    return tmp_path


def results(folder):
    return {made.seed: made for made in read_records(folder / "benchmark")}


def run_folders(folder):
    return sorted(path.name for path in (folder / "data/suite_benchmark").glob("*/"))


@pytest.mark.slow
def test_a_suite_is_trained_once_with_every_seed(folder):
    done = call([str(LAB), "benchmark", "suite.yaml"], folder)
    assert done.outcome == (0, "")
    assert "0 of them done" in done.out
    made = results(folder)
    assert sorted(made) == [5, 6]
    for result in made.values():
        assert (result.ending, result.frames) == ("finished", 600)
        assert result.final_return > 5
        assert result.evaluation.episodes == 2
        assert result.curve.frame[-1] <= 600
        assert result.curve.episode_return
        assert result.sets == ["meta.max_run=1", "meta.max_session=1"]
        assert result.random_return == pytest.approx(22, abs=3)
    assert made[5].final_return != made[6].final_return
    folders = run_folders(folder)
    assert len(folders) == 2
    again = call([str(LAB), "benchmark", "suite.yaml"], folder)
    assert again.outcome == (0, "")
    assert "2 of them done" in again.out
    assert results(folder) == made
    # a result that is lost is made again from the run folder
    (folder / f"benchmark/suite/{NAME}_6.json").unlink()
    again = call([str(LAB), "benchmark", "suite.yaml"], folder)
    assert again.outcome == (0, "")
    assert run_folders(folder) == folders
    assert results(folder)[6].final_return == made[6].final_return
    assert results(folder)[6].evaluation == made[6].evaluation


@pytest.mark.slow
def test_a_run_folder_of_another_spec_is_refused(folder):
    first = call([str(LAB), "benchmark", "suite.yaml"], folder)
    assert first.outcome == (0, "")
    for file in (folder / "benchmark/suite").glob("*.json"):
        file.unlink()
    changed = SUITE + "    set: {agent.algorithm.gamma: 0.5}\n"
    (folder / "suite.yaml").write_text(changed)
    second = call([str(LAB), "benchmark", "suite.yaml"], folder)
    assert second.code == 2
    assert "is a run of another spec" in second.err
    assert run_folders(folder)[0] in second.err
    assert not list((folder / "benchmark/suite").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["Ctrl-C", "kill -9"])
def test_a_suite_continues_after_any_end(folder, ending):
    write_spec(folder, ppo(env__max_frame=40_000))
    command = [str(LAB), "benchmark", "suite.yaml", "--jobs", "1"]
    rows = "data/suite_benchmark/*/info/*_s0_session_df_train.csv"
    with started_as(folder, command) as running:
        wait_until(
            lambda: any(file.stat().st_size > 2000 for file in folder.glob(rows))
        )
        if ending == "Ctrl-C":
            interrupt(running)
            done = running.end()
            assert done.code == 130, done.err
            words = "benchmark suite.yaml --data benchmark --jobs 1"
            assert f"continue with: slm-lab {words}" in done.out
            stopped = results(folder)[5]
            assert stopped.ending == "stopped"
            assert 0 < stopped.frames < 40_000
        else:
            running.process.kill()
            running.process.wait()
            wait_until(lambda: not running.children())
    done = call(command, folder)
    assert done.outcome == (0, "")
    made = results(folder)
    assert [made[seed].frames for seed in (5, 6)] == [40_000, 40_000]
    if ending == "kill -9":
        # nobody knows what ran beside the part that was killed
        assert not made[5].is_alone
    assert len(run_folders(folder)) == 2


@pytest.mark.slow
def test_a_training_that_fails_is_kept_as_failed_and_breaks_its_bound(folder):
    options = ["-s", "agent.net.optim_spec.lr=1e30"]
    done = call([str(LAB), "benchmark", "suite.yaml", *options], folder)
    assert done.code == 1
    made = results(folder)
    assert [made[seed].ending for seed in (5, 6)] == ["failed", "failed"]
    assert "loss" in made[5].error
    judged = lab(folder, "benchmark", "--gate", "--data", "benchmark")
    assert judged.code == 1
    assert "is below its bound of 5" in judged.err
    assert "2 failed" in judged.err


def test_the_gate_judges_stored_results_without_training(tmp_path):
    data = tmp_path / "kept"
    for seed in (1, 2):
        write_record(data, record(seed=seed, final=100.0 + seed, bound=101.0))
    done = lab(tmp_path, "benchmark", "--gate", "--data", "kept")
    assert done.outcome == (0, "")
    assert "all 1 bound are kept" in done.out
    write_record(data, record(seed=3, final=100.0, bound=101.0))
    done = lab(tmp_path, "benchmark", "--gate", "--data", "kept")
    assert done.code == 1
    assert "PPO CartPole-v1 is below its bound of 101" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_report_is_made_from_the_data_alone(tmp_path):
    for seed in (1, 2):
        write_record(tmp_path / "kept", record(seed=seed, final=100.0 + seed))
    done = lab(tmp_path, "benchmark", "--report", "--data", "kept", "--out", "tables")
    assert done.outcome == (0, "")
    assert "101, 102" in (tmp_path / "tables/small.md").read_text()
    done = lab(tmp_path, "benchmark", "--report", "--data", "kept", "--json")
    files = json.loads(done.out)["files"]
    assert "report/results.csv" in files


def test_a_result_of_another_spec_is_not_mixed_with_new_ones(folder):
    made = record(seed=5, suite="suite", row=NAME, spec={"env": {"name": "another"}})
    write_record(folder / "benchmark/suite", made)
    assert_bad_input(
        folder,
        ["benchmark", "suite.yaml"],
        [f"{NAME}_5.json is a result of another spec", "delete it"],
    )


def test_only_takes_a_text_in_capitals_or_not(folder):
    """A row that is taken is refused here, as it has a result of another spec."""
    made = record(seed=5, suite="suite", row=NAME, spec={"env": {"name": "another"}})
    write_record(folder / "benchmark/suite", made)
    args = ["benchmark", "suite.yaml", "--only", NAME.swapcase()]
    assert_bad_input(folder, args, ["is a result of another spec"])


def test_stored_results_and_a_suite_are_not_judged_at_once(folder):
    write_record(folder / "kept", record(bound=1.0))
    args = ["benchmark", "suite.yaml", "--gate", "--data", "kept"]
    assert_bad_input(folder, args, ["--gate", "--data", "leave out"])


@pytest.mark.parametrize("judges", ["--report", "--gate"])
@pytest.mark.parametrize("option", [("--only", "x"), ("--jobs", "1"), ("-s", "a=1")])
def test_stored_results_are_read_whole(judges, option, folder):
    write_record(folder / "kept", record(bound=1.0))
    args = ["benchmark", judges, "--data", "kept", *option]
    assert_bad_input(folder, args, [option[0], "leave them out"])


def test_a_judgement_as_json_is_one_document(tmp_path):
    for seed, final in ((1, 100.0), (2, 90.0)):
        write_record(tmp_path / "kept", record(seed=seed, final=final, bound=95.0))
    done = lab(tmp_path, "benchmark", "--gate", "--data", "kept", "--json")
    assert done.code == 1
    (judged,) = json.loads(done.out)["bounds"]
    assert judged == {
        "suite": "small",
        "row": "PPO CartPole-v1",
        "bound": 95.0,
        "final_returns": [100.0, 90.0],
        "kept": False,
    }


WRONG = {
    "no suite": ([], ["name a suite", "gate"]),
    "an unknown suite": (["gaet"], ["did you mean gate"]),
    "a report of a suite": (["gate", "--report"], ["--report", "leave out"]),
    "no results": (["--report"], ["benchmark holds no results"]),
    "no row of this name": (["suite.yaml", "--only", "dqn"], ["--only dqn", NAME]),
    "an unknown key": (["suite.yaml", "-s", "agent.algorithm.gama=1"], ["gamma"]),
    "several Sessions": (["suite.yaml", "-s", "meta.max_session=2"], ["must be 1"]),
    "no cores": (["suite.yaml", "--jobs", "0"], ["--jobs"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, folder):
    args, words = WRONG[what]
    assert_bad_input(folder, ["benchmark", *args], words)


def test_an_algorithm_needs_an_environment(folder):
    (folder / "suite.yaml").write_text("seeds: [1]\nruns: [{specs: [ppo]}]\n")
    assert_bad_input(folder, ["benchmark", "suite.yaml"], ["ppo", "envs: ["])


def test_a_damaged_result_is_named(tmp_path):
    write_record(tmp_path / "kept", record())
    (file,) = (tmp_path / "kept").iterdir()
    file.write_text(file.read_text().replace('"seed": 1', '"seed": "one"'))
    done = lab(tmp_path, "benchmark", "--report", "--data", "kept")
    assert done.code == 2
    assert f"{file.relative_to(tmp_path)} is damaged: seed" in done.err


def test_a_folder_of_runs_is_answered_with_what_to_name_not_with_what_to_delete(
    tmp_path,
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small_spec.json").write_text("{}")
    args = ["benchmark", "--report", "--data", "data"]
    assert_bad_input(tmp_path, args, ["small_spec.json", "name a folder of results"])
    assert "delete" not in lab(tmp_path, *args).err


def test_results_without_a_bound_cannot_be_judged(tmp_path):
    write_record(tmp_path / "kept", record())
    done = lab(tmp_path, "benchmark", "--gate", "--data", "kept")
    assert done.code == 2
    assert "no row of these results has a bound" in done.err
