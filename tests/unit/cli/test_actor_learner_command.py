"""A run of actors and a learner, as a user sees it: trained once, resumed and
evaluated."""

import re

import pytest

from tests.faults.lab import manifest, run_folder
from tests.faults.lab import trial_metrics as metrics_of
from tests.support import made_once, ppo
from tests.unit.cli.trained import lab_run, trained

pytestmark = pytest.mark.medium

SPEC = ppo(meta__distributed="actor_learner", meta__max_session=2, env__max_frame=1024)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_once(tmp_path_factory, "actors", lambda folder: trained(folder, SPEC))


def logs(folder):
    return {
        path.name: path.read_bytes()
        for path in (run_folder(folder) / "log").glob("*.log")
    }


def test_the_output_names_learner_and_actors_and_has_the_metrics_of_the_learner(run):
    shown = (run / "out").read_text()
    assert '2 actors and a learner ("actor_learner")' in shown
    assert re.search(
        r"^\S+ learner: 1,0\d\d / 1,024 frames, return .*, done$", shown, re.MULTILINE
    )
    for actor in range(2):
        assert re.search(rf"^\S+ actor {actor}: \d+ frames, done$", shown, re.MULTILINE)
    assert "Session 0:" not in shown
    assert metrics_of(run)["num_sessions"] == 1
    assert metrics_of(run)["throughput"]["policy_lag"] is not None


def test_only_the_learner_leaves_rows_a_checkpoint_and_graphs(run):
    root = run_folder(run)
    assert {path.stem[-1] for path in (root / "log").glob("*.log")} == {"0", "1", "2"}
    for part in ("info/*session*", "model/*", "graph/*", "log/tensorboard/*"):
        found = {re.search(r"_s(\d)", path.name)[1] for path in root.glob(part)}
        assert found == {"0"}, part


def test_a_finished_run_that_is_resumed_starts_nothing(copy):
    before, saved = logs(copy), manifest(copy).read_bytes()
    done = lab_run(copy, "train@latest")
    assert done.code == 0
    assert "every Session has already finished" in done.both
    assert (logs(copy), manifest(copy).read_bytes()) == (before, saved)
    assert [each["ending"] for each in metrics_of(copy)["sessions"]] == ["finished"] * 3


def test_evaluation_and_enjoy_use_the_learner(run):
    done = lab_run(run, "eval@latest", "--episodes", "4")
    assert done.code == 0
    assert len(re.findall(r"^\s+\d+\s+(?:best|latest)\s", done.both, re.MULTILINE)) == 1
    assert (
        lab_run(run, "eval@latest", "--episodes", "4", "--session", "0").both
        == done.both
    )
    assert lab_run(run, "enjoy@latest", "--episodes", "1").code == 0


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
@pytest.mark.parametrize("session", ["1", "2"])
def test_an_actor_has_no_agent_to_look_at(run, mode, session):
    done = lab_run(run, mode, "--session", session)
    assert done.code == 2
    assert f"Session {session}: it is an actor" in done.both
    assert "its learner is Session 0" in done.both
