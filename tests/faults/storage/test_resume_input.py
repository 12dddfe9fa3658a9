"""The input of a resumed run: its folder, damaged or not, and the values of -s."""

import json
import re
import shutil
import signal
import sys
from hashlib import sha256

import pytest
import torch

from tests.faults.lab import (
    LAB,
    NAME,
    call,
    call_here,
    command,
    manifest,
    repeatable,
    rows_file,
    run,
    run_folder,
    run_here,
    started,
    wait_until,
    write_spec,
)
from tests.support import made_once, ppo

pytestmark = pytest.mark.medium

SHORT = ppo(env__max_frame=500)
LONGER = ("-s", "env.max_frame=1000")


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run of 500 frames."""

    def make(folder):
        write_spec(folder, SHORT)
        (folder / "data").mkdir()
        run_here(folder, "train")

    return made_once(tmp_path_factory, "short", make)


@pytest.fixture
def copy(short, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(short, tmp_path / "copy")


def state_file(folder):
    models = run_folder(folder) / "model"
    return models / json.loads(manifest(folder).read_text())["files"]["state"]["name"]


def cut_manifest(folder):
    manifest(folder).write_text(manifest(folder).read_text()[:40])
    return manifest(folder)


def empty_manifest(folder):
    manifest(folder).write_text("")
    return manifest(folder)


def foreign_manifest(folder):
    manifest(folder).write_text(json.dumps({"format": 99}))
    return manifest(folder)


def list_manifest(folder):
    manifest(folder).write_text("[1, 2]")
    return manifest(folder)


def changed_state(folder):
    path = state_file(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


def missing_state(folder):
    path = state_file(folder)
    path.unlink()
    return path


def missing_rows(folder):
    path = rows_file(folder)
    path.unlink()
    return path


def changed_rows(folder):
    path = rows_file(folder)
    lines = path.read_text().splitlines(keepends=True)
    lines[-1] = lines[-1][:-2] + ("1" if lines[-1][-2] != "1" else "2") + "\n"
    path.write_text("".join(lines))
    return path


DAMAGES = [
    cut_manifest,
    empty_manifest,
    foreign_manifest,
    list_manifest,
    changed_state,
    missing_state,
]
"""Of the newest checkpoint only."""


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_where_the_newest_checkpoint_is_damaged_the_one_before_leads_to_the_same_rows(
    damage, copy, finished
):
    path = damage(copy)
    done = run(copy, "train@latest", *LONGER)
    (line,) = (line for line in done.out.splitlines() if "falls back" in line)
    assert "falls back to the checkpoint at frame 500: " in line
    assert path.name in line
    assert repeatable(rows_file(copy))[-1] == repeatable(rows_file(finished[0], 0))[-1]


@pytest.mark.parametrize(
    ("damage", "what"),
    [("missing_rows", "is missing"), ("changed_rows", "is damaged: rows do not match")],
)
def test_without_an_intact_checkpoint_the_damage_is_reported_and_nothing_is_trained(
    copy, damage, what
):
    path = globals()[damage](copy)
    done = call_here(command(copy, "train@latest", *LONGER), copy)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert f"no checkpoint is intact: {path} {what}" in line


def test_rows_that_were_edited_are_not_plotted(copy):
    path = changed_rows(copy)
    done = call_here([str(LAB), "plot", str(run_folder(copy))], copy)
    assert done.code == 2
    assert f"{path} is damaged" in done.err
    assert "Traceback" not in done.err


def test_weights_of_nan_are_refused_though_their_checksum_is_right(copy):
    path = state_file(copy)
    state = torch.load(path)
    for flat in state["agent"]["learner"]["train_state"].values():
        flat["flat"]["vector"][3] = float("nan")
    torch.save(state, path)
    about = json.loads(manifest(copy).read_text())
    content = path.read_bytes()
    about["files"]["state"] |= {
        "bytes": len(content),
        "sha256": sha256(content).hexdigest(),
    }
    manifest(copy).write_text(json.dumps(about))
    for mode in ("eval@latest", "train@latest"):
        options = LONGER
        if mode == "eval@latest":
            options = ("--which", "latest")
        done = call_here(command(copy, mode, *options), copy)
        assert done.code == 1
        assert f"{path}: weights of the network " in done.err
        assert re.search(r"not finite \(1 of \d+\)", done.err)
        assert "Traceback" not in done.err
        assert "resume with" not in done.out, "it would only fail again"


@pytest.mark.slow
def test_a_longer_budget_gives_the_rows_of_a_run_that_had_it_from_the_start(
    copy, finished
):
    run(copy, "train@latest", *LONGER)
    resumed = repeatable(rows_file(copy))
    whole = repeatable(rows_file(finished[0], 0))
    # The row at which the first budget was spent has the mean of fewer episodes than
    # decide.
    assert whole[5][resumed[0].index("recent_return")] == ""
    resumed[5][resumed[0].index("recent_return")] = ""
    assert resumed == whole
    saved = json.loads((run_folder(copy) / f"{NAME}_spec.json").read_text())
    assert saved[NAME]["env"]["max_frame"] == 1000


@pytest.mark.slow
def test_resuming_a_finished_run_only_redraws_its_graphs(copy):
    rows = rows_file(copy).read_bytes()
    model = manifest(copy).read_bytes()
    done = run(copy, "train@latest")
    assert "every Session has already finished" in done.out
    assert (rows_file(copy).read_bytes(), manifest(copy).read_bytes()) == (rows, model)


def pictures(folder):
    return {path.relative_to(folder) for path in folder.rglob("*.png")}


def test_a_stop_while_graphs_are_drawn_leaves_out_the_rest_until_a_resume(copy):
    every = pictures(copy)
    for picture in every:
        (copy / picture).unlink()
    with started(copy, "train@latest") as running:
        wait_until(lambda: pictures(copy))
        running.signal_group(signal.SIGTERM)
        done = running.end()
    assert done.outcome == (130, "")
    assert "the stop left graphs out" in done.out
    assert "resume with: slm-lab run train@" in done.out
    assert pictures(copy) < every
    run_here(copy, "train@latest")
    assert pictures(copy) == every


def test_a_setting_that_earlier_rows_depend_on_is_refused_on_resume(copy):
    before = (run_folder(copy) / f"{NAME}_spec.json").read_bytes()
    done = call_here(
        command(copy, "train@latest", *LONGER, "-s", "agent.algorithm.gamma=0.5"), copy
    )
    assert done.code == 2
    assert "agent.algorithm.gamma" in done.err
    assert "0.99" in done.err
    assert "Traceback" not in done.err
    assert (run_folder(copy) / f"{NAME}_spec.json").read_bytes() == before


def test_another_seed_is_refused_on_resume(copy):
    done = call_here(command(copy, "train@latest", "--seed", "1"), copy)
    assert done.code == 2
    assert "random_seed" in done.err


@pytest.mark.slow
def test_a_changed_spec_file_only_gives_a_note_on_resume(copy):
    write_spec(copy, ppo(env__max_frame=500, agent__algorithm__gamma=0.5))
    done = run(copy, "train@latest")
    assert "agent.algorithm.gamma" in done.out
    saved = json.loads((run_folder(copy) / f"{NAME}_spec.json").read_text())
    assert saved[NAME]["agent"]["algorithm"]["gamma"] == 0.99


def test_a_folder_that_is_no_run_of_the_spec_is_bad_input(copy):
    (copy / "data" / "other").mkdir()
    done = call_here(command(copy, f"train@{copy / 'data' / 'other'}"), copy)
    assert done.code == 2
    assert "is not a run of small" in done.err


def test_a_run_killed_before_its_spec_was_saved_cannot_be_resumed(copy):
    """The newer folder is empty; the older one has a whole run in it."""
    (copy / "data" / f"{NAME}_2999_01_01_000000").mkdir()
    done = call_here(command(copy, "train@latest", "--seed", "1"), copy)
    assert done.code == 2
    assert "random_seed" in done.err, "it was not the older run that was taken"


def test_a_resumed_run_imports_its_modules_with_the_option_and_else_changes_nothing(
    copy, monkeypatch
):
    path = run_folder(copy) / f"{NAME}_spec.json"
    content = json.loads(path.read_text())
    content["_run"]["imports"] = ["mine"]
    content[NAME]["env"]["name"] = "Mine-v0"
    path.write_text(json.dumps(content))
    before = {p: p.read_bytes() for p in run_folder(copy).rglob("*.json")}
    without = call_here(command(copy, "train@latest", *LONGER), copy)
    assert without.code == 2
    assert (
        "the module mine. If you trust it, repeat the command with --import mine"
        in without.err
    )
    (copy / "mine.py").touch()  # it registers nothing
    monkeypatch.setattr(sys, "path", [*sys.path])
    refused = call_here(
        command(copy, "train@latest", *LONGER, "--import", "mine"), copy
    )
    sys.modules.pop("mine")
    assert refused.code == 2
    assert "Mine-v0" in refused.err
    assert {p: p.read_bytes() for p in run_folder(copy).rglob("*.json")} == before


@pytest.mark.slow
def test_a_spec_that_was_edited_to_build_another_agent_is_one_clear_line(copy):
    path = run_folder(copy) / f"{NAME}_spec.json"
    content = json.loads(path.read_text())
    content[NAME]["agent"]["net"]["hid_layers"] = [32]
    path.write_text(json.dumps(content))
    rows = rows_file(copy).read_bytes()
    done = call(command(copy, "train@latest", *LONGER), copy)
    assert done.code == 1
    (line,) = (line for line in done.err.splitlines() if "was saved as" in line)
    assert line.startswith(f"{run_folder(copy)}: ")
    assert (
        "net.hidden.0.weight of the network actor was saved as 16×4 and is built as 32"
        in line
    )
    assert "Traceback" not in done.err
    assert rows_file(copy).read_bytes() == rows


@pytest.mark.slow
def test_a_run_on_an_environment_of_a_plug_in_is_resumed(folder):
    write_spec(folder, ppo(env__name="Mine-v0", env__max_frame=300))
    (folder / "mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v0', entry_point=CartPoleEnv, max_episode_steps=50)\n"
    )
    assert call(command(folder, "train", "--import", "mine"), folder).code == 0
    longer = ("-s", "env.max_frame=600", "--import", "mine")
    resumed = call(command(folder, "train@latest", *longer), folder)
    assert (resumed.code, resumed.err) == (0, "")
