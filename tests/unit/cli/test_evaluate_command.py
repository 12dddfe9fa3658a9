"""`eval@RUN`, on a run that was made once."""

import json

import pytest

from slm_lab.metrics.writer import Extent
from slm_lab.records.lock import RunLock
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import NAME, manifest, run_folder, write_spec
from tests.support import ppo
from tests.unit.cli.trained import fingerprint, lab_run, table


def test_evaluations_during_training_leave_rows_metrics_and_graphs(run):
    root = run_folder(run)
    for s in (0, 1):
        metrics = json.loads(
            (
                root / "info" / f"{NAME}_t0_s{s}_session_metrics_scalar_eval.json"
            ).read_text()
        )
        lines = (
            (root / "info" / f"{NAME}_t0_s{s}_session_df_eval.csv")
            .read_text()
            .splitlines()
        )
        assert metrics["num_rows"] == len(lines) - 1 == 3
        assert metrics["strength"] is not None
        rows = read_manifest(manifest(run, s)).rows
        assert rows == {
            path.name: Extent.of(path.read_bytes())
            for path in root.glob(f"info/*s{s}*.csv")
        }
        assert list(
            (root / "log" / "tensorboard" / f"{NAME}_t0_s{s}" / "eval").iterdir()
        )
    for kind in ("png", "html"):
        graph = root / f"{NAME}_t0_trial_graph_eval_mean_returns_vs_frames.{kind}"
        overview = root / "graph" / f"{NAME}_t0_s1_session_graph_overview.{kind}"
        assert graph.stat().st_size
        assert overview.stat().st_size


def test_every_session_is_evaluated_and_all_of_them_together(run):
    done = lab_run(run, "eval@latest", "--episodes", "20")
    assert done.code == 0
    first, second, both = table(done.both)
    assert [first[0], second[0], both[0]] == ["0", "1", "all"]
    assert (first[3], second[3], both[1]) == ("20", "20", "40")
    means = [float(row[4]) for row in (first, second)]
    assert float(both[2]) == pytest.approx(sum(means) / 2, rel=1e-3)
    for row in (first[4:], second[4:], both[2:]):
        mean, std, least, most, length = map(float, row)
        assert least <= mean <= most
        assert std <= most - least
        assert length == pytest.approx(mean, abs=0.1)  # CartPole: 1 per step


def test_a_run_can_be_named_in_every_way_that_resuming_knows(run):
    folder = run_folder(run)
    outputs = {
        lab_run(run, f"eval@{name}", "--episodes", "4").both
        for name in ("latest", folder, folder.name)
    }
    assert len(outputs) == 1


def test_the_same_command_prints_the_same_and_another_seed_does_not(run):
    first, again = (
        lab_run(run, "eval@latest", "--episodes", "20").both for _ in range(2)
    )
    assert first == again
    other = lab_run(run, "eval@latest", "--episodes", "20", "--seed", "7").both
    assert table(other) != table(first)


def test_a_session_is_evaluated_alone_as_among_the_others(run):
    together = table(lab_run(run, "eval@latest", "--episodes", "8").both)
    assert table(
        lab_run(run, "eval@latest", "--episodes", "8", "--session", "1").both
    ) == [together[1]]


def test_the_best_agent_plays_unless_the_latest_is_asked_for(run):
    store = CheckpointStore(run_folder(run) / "model", f"{NAME}_t0_s0")
    best = store.load(store.manifest(), "best")
    by_default, latest = (
        table(lab_run(run, "eval@latest", "--session", "0", *options).both)[0]
        for options in ((), ("--which", "latest"))
    )
    assert by_default[1:3] == ["best", str(best["frame"])]
    assert latest[1:3] == ["latest", "500"]


def test_without_a_best_agent_the_latest_plays_with_a_note(copy):
    path = manifest(copy, 1)
    content = json.loads(path.read_text())
    del content["files"]["best"]
    path.write_text(json.dumps(content))
    done = lab_run(copy, "eval@latest", "--episodes", "2")
    assert [row[1] for row in table(done.both)][:2] == ["best", "latest"]
    assert "Session 1 has no best agent yet: its latest agent plays" in done.both
    done = lab_run(copy, "eval@latest", "--which", "best")
    assert done.code == 2
    assert "Session 1 has no best agent yet" in done.both
    assert "--which latest" in done.both


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
def test_the_run_is_not_touched_not_even_its_times_or_its_lock(run, mode):
    before = fingerprint(run)
    lock = RunLock(run_folder(run))  # as a training holds it
    held = fingerprint(run)
    assert lab_run(run, mode, "--episodes", "2").code == 0
    assert fingerprint(run) == held
    lock.release()
    assert held.keys() == before.keys()


def test_a_random_agent_is_evaluated_like_any_other(random_run):
    first, again = (
        lab_run(random_run, "eval@latest", "--episodes", "50").both for _ in range(2)
    )
    assert first == again
    assert 15 < float(table(first)[0][4]) < 30


REFUSED = {
    "an agent that was trained otherwise": (
        ["eval@latest", "-s", "agent.algorithm.gamma=0.5"],
        ["agent.algorithm.gamma", "0.99", "env.max_t"],
    ),
    "another environment": (
        ["eval@latest", "-s", "env.name=Acrobot-v1"],
        ["env.name", "CartPole"],
    ),
    "a key that is none": (["eval@latest", "-s", "env.max_tt=3"], ["env.max_tt"]),
    "a session that is none": (
        ["eval@latest", "--session", "2"],
        ["Session 2: the run has", "0 to 1"],
    ),
    "a folder that is none": (["eval@nowhere"], ["no run folder nowhere"]),
    "a window for a table": (["eval@latest", "--render"], ["--render", "enjoy@RUN"]),
    "a video of a table": (["eval@latest", "--video"], ["--video", "enjoy@RUN"]),
    "a window and a video": (
        ["enjoy@latest", "--video", "--render"],
        ["--render and --video exclude each other"],
    ),
    "episodes of a training": (
        ["train", "--episodes", "3"],
        ["--episodes", "eval@RUN"],
    ),
    "a session of a resumed training": (
        ["train@latest", "--session", "0"],
        ["--session"],
    ),
    "no run": (["enjoy"], ["enjoy@latest"]),
    "no episodes": (["eval@latest", "--episodes", "0"], ["--episodes"]),
    "neither best nor latest": (
        ["eval@latest", "--which", "worst"],
        ["--which", "latest"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_evaluation_options_are_one_clear_message(what, run):
    args, words = REFUSED[what]
    before = fingerprint(run)
    done = lab_run(run, *args)
    assert done.code == (3 if what == "a folder that is none" else 2)
    for word in words:
        assert word in done.both
    assert fingerprint(run) == before


def test_a_step_limit_can_be_set_for_episodes_that_do_not_end(run):
    done = lab_run(run, "eval@latest", "--episodes", "4", "-s", "env.max_t=7")
    assert [row[-1] for row in table(done.both)] == ["7.00", "7.00", "7.00"]


def test_the_spec_of_the_run_counts_whatever_the_file_says_by_now(copy):
    before = lab_run(copy, "eval@latest", "--episodes", "4").both
    write_spec(copy, ppo(env__name="Acrobot-v1", agent__net__hid_layers=[8]))
    assert lab_run(copy, "eval@latest", "--episodes", "4").both == before
