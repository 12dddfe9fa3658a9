"""`eval@RUN` and `enjoy@RUN` of runs that were killed, damaged or edited."""

import json

import pytest

from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.manifest import previous_path, read_manifest
from tests.faults.lab import NAME, manifest, run_folder
from tests.unit.cli.trained import edited, lab_run, table


def test_a_run_that_was_killed_before_its_first_checkpoint_has_nothing_to_evaluate(
    copy,
):
    for path in (run_folder(copy) / "model").iterdir():
        path.unlink()
    for mode in ("eval@latest", "enjoy@latest"):
        done = lab_run(copy, mode)
        assert done.code == 2
        assert "Session 0 has no checkpoint yet" in done.both


@pytest.mark.parametrize("part", ["best", "state"])
def test_a_damaged_checkpoint_is_reported(copy, part):
    name = read_manifest(manifest(copy)).files[part].name
    (run_folder(copy) / "model" / name).write_bytes(b"damaged")
    which = "best" if part == "best" else "latest"
    done = lab_run(copy, "eval@latest", "--which", which)
    assert done.code == 1
    assert name in done.both
    assert "damaged" in done.both


def test_of_a_damaged_manifest_the_previous_checkpoint_is_reported(copy):
    kept = "resumes from the previous checkpoint"
    previous = previous_path(manifest(copy))
    previous.write_bytes(manifest(copy).read_bytes())
    manifest(copy).write_text("{")
    for mode in ("eval@latest", "enjoy@latest"):
        assert kept in " ".join(lab_run(copy, mode).both.split())
    previous.unlink()
    assert kept not in " ".join(lab_run(copy, "eval@latest").both.split())


@pytest.mark.parametrize("part", ["best", "state"])
def test_a_checkpoint_that_a_training_replaces_meanwhile_is_read_again(
    copy, part, monkeypatch
):
    store = CheckpointStore(run_folder(copy) / "model", f"{NAME}_t0_s0")
    stale = store.manifest()
    parts = {name: store.load(stale, name) for name in ("state", "best")}
    expected = lab_run(copy, "eval@latest", "--session", "0", "--episodes", "2").both
    store.save(500, stale.rows, parts)
    manifests, read = [stale], CheckpointStore.manifest
    monkeypatch.setattr(
        CheckpointStore,
        "manifest",
        lambda self: manifests.pop() if manifests else read(self),
    )
    which = "best" if part == "best" else "latest"
    done = lab_run(
        copy, "eval@latest", "--session", "0", "--episodes", "2", "--which", which
    )
    assert done.code == 0
    assert not manifests
    assert part == "state" or done.both == expected


def test_sessions_without_a_checkpoint_are_left_out_with_a_note(copy):
    manifest(copy, 1).unlink()
    done = lab_run(copy, "eval@latest", "--episodes", "2")
    assert done.code == 0
    assert [row[0] for row in table(done.both)] == ["0"]
    assert "Session 1 has no saved agent: left out" in done.both
    assert lab_run(copy, "eval@latest", "--session", "1").code == 2


def test_an_agent_that_never_trained_does_not_count_for_all(copy):
    store = CheckpointStore(run_folder(copy) / "model", f"{NAME}_t0_s0")
    state = store.load(store.manifest())
    manifest(copy).unlink()
    store.save(0, {}, {"state": {**state, "frame": 0}})
    done = lab_run(copy, "eval@latest", "--episodes", "2")
    assert [row[0] for row in table(done.both)] == ["0", "1"]
    assert "Session 0 stopped at frame 0" in done.both


def test_a_damaged_best_agent_has_the_latest_one_recommended(copy):
    files = read_manifest(manifest(copy)).files
    (run_folder(copy) / "model" / files["best"].name).write_bytes(b"damaged")
    assert "choose the latest" in lab_run(copy, "eval@latest").both
    (run_folder(copy) / "model" / files["state"].name).write_bytes(b"damaged")
    assert "choose the latest" not in lab_run(copy, "eval@latest").both


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest", "train@latest"])
def test_a_run_whose_seed_was_taken_out_is_one_clear_message(copy, mode):
    path = next(run_folder(copy).glob(f"{NAME}_spec.json"))
    content = json.loads(path.read_text())
    content[NAME]["meta"]["random_seed"] = None
    path.write_text(json.dumps(content))
    done = lab_run(copy, mode)
    assert done.code == 2
    assert "meta.random_seed = null" in done.both


EDITED = {
    "a wider layer": (
        "agent.net.hid_layers",
        [32],
        "net.hidden.0.weight of the network actor was saved as 16×4 and is built as "
        "32×4",
    ),
    "one more layer": (
        "agent.net.hid_layers",
        [16, 8],
        "net.heads.0.weight of the network actor was saved as 2×16 and is built as 2×8",
    ),
    "one network less": (
        "agent.net.shared",
        True,
        "the saved networks are actor, critic, the spec builds ",
    ),
    "another environment": (
        "env.name",
        "Acrobot-v1",
        "net.hidden.0.weight of the network actor was saved as 16×4 and is built as "
        "16×6",
    ),
    "no normaliser": (
        "env.normalize_obs",
        False,
        "were saved with 9 statistics and are built ",
    ),
}


@pytest.mark.parametrize("which", ["best", "latest"])
@pytest.mark.parametrize("what", EDITED)
def test_a_run_whose_spec_was_edited_to_build_another_agent_is_one_clear_line(
    copy, what, which
):
    path, value, difference = EDITED[what]
    edited(copy, path, value)
    done = lab_run(copy, "eval@latest", "--which", which, "--session", "0")
    assert done.code == 1
    (line,) = (line for line in done.err.splitlines() if line)
    assert line.startswith(f"{run_folder(copy)}: ")
    assert difference in line
    assert line.endswith("undo the change in its *_spec.json")


def test_training_settings_do_not_affect_an_evaluation(copy):
    options = ("--which", "latest", "--episodes", "4")
    before = lab_run(copy, "eval@latest", *options).both
    edited(copy, "agent.net.optim_spec", {"name": "RMSprop", "lr": 0.001})
    assert lab_run(copy, "eval@latest", *options).both == before


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
def test_modules_that_the_run_imported_are_imported_again(copy, mode):
    path = next(run_folder(copy).glob(f"{NAME}_spec.json"))
    content = json.loads(path.read_text())
    content["_run"]["imports"] = ["a_plugin_that_is_gone"]
    path.write_text(json.dumps(content))
    done = lab_run(copy, mode)
    assert done.code == 2
    assert "--import a_plugin_that_is_gone" in done.both
