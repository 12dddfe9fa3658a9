"""A run that comes to its end: its files, its metrics, its seed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slm_lab.metrics.writer import Extent
from slm_lab.storage.checkpoint import read_state
from slm_lab.storage.manifest import previous_path, read_manifest
from tests.faults.lab import (
    NAME,
    call,
    command,
    manifest,
    repeatable,
    rows_file,
    run,
    run_folder,
    trial_metrics,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.medium

ROOT = Path(__file__).parents[3]
SESSIONS = (0, 1)


def names(folder):
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }


def test_a_run_leaves_every_file_that_the_design_lists(finished):
    folder, done = finished
    assert done.outcome == (0, "")
    graphs = [
        *(
            f"{NAME}_t0_trial_graph_mean_returns_{what}"
            for what in ("vs_frames", "ma_vs_frames")
        ),
        *(f"graph/{NAME}_t0_s{s}_session_graph_overview" for s in SESSIONS),
    ]
    trial = f"{NAME}_t0_trial_metrics_scalar.json"
    wanted = {f"{graph}.{kind}" for graph in graphs for kind in ("png", "html")}
    wanted |= {f"{NAME}_spec.json", f"{NAME}_t0_spec.json", trial, f"info/{trial}"}
    for s in SESSIONS:
        wanted.add(f"info/{NAME}_t0_s{s}_session_df_train.csv")
        wanted.add(f"info/{NAME}_t0_s{s}_session_metrics_scalar_train.json")
        wanted.add(f"model/{NAME}_t0_s{s}_latest.json")
    root = run_folder(folder)
    assert wanted <= names(root)
    assert all((root / name).stat().st_size for name in names(root))
    for s in SESSIONS:
        assert list((root / "log" / "tensorboard" / f"{NAME}_t0_s{s}").iterdir())


def test_no_temporary_file_is_left(finished):
    left = {
        n for n in names(finished[0] / "data") if "tmp" in n or "part" in n or "/." in n
    }
    assert left == {f"{run_folder(finished[0]).name}/.lock"}


def test_pictures_and_pages_are_what_their_names_say(finished):
    root = run_folder(finished[0])
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in root.rglob("*.png"))
    assert all("</html>" in p.read_text() for p in root.rglob("*.html"))


def test_the_manifest_names_all_checkpoints_that_lie_there_and_they_can_be_read(
    finished,
):
    models = run_folder(finished[0]) / "model"
    named = set()
    for s in SESSIONS:
        found = read_manifest(manifest(finished[0], s))
        assert (found.frame, found.finished) == (1000, True)
        rows = rows_file(finished[0], s)
        assert found.rows == {rows.name: Extent.of(rows.read_bytes())}
        assert set(found.files) == {"state", "best"}
        for file in found.files.values():
            named.add(file.name)
            assert read_state(models, file)
        before = read_manifest(previous_path(manifest(finished[0], s)))
        assert before.serial == found.serial - 1
        named |= before.names
    assert {path.name for path in models.glob("*.pt")} == named


def test_metrics_are_json_and_say_how_many_sessions_they_rest_on(finished):
    metrics = trial_metrics(finished[0])
    assert metrics["max_session"] == metrics["num_sessions"] == 2
    assert metrics["rests_on"]["strength"] == 2
    assert [session["ending"] for session in metrics["sessions"]] == ["finished"] * 2
    for name, count in metrics["rests_on"].items():
        assert (metrics[name] is None) == (count == 0)
        assert metrics[name] is not None or metrics["reasons"][name]


def test_the_output_has_the_run_folder_and_the_graph(finished):
    folder, done = finished
    assert str(run_folder(folder)) in done.out
    assert f"{NAME}_t0_trial_graph_mean_returns_ma_vs_frames.png" in done.out
    assert "2 of 2" in done.out


def test_the_sessions_of_a_trial_are_independent(finished):
    first, second = (repeatable(rows_file(finished[0], s)) for s in SESSIONS)
    assert first[0] == second[0]
    assert first[1:] != second[1:]


def test_the_spec_file_of_a_run_has_the_seed_the_versions_and_the_command(finished):
    root = run_folder(finished[0])
    saved = json.loads((root / f"{NAME}_spec.json").read_text())
    about = saved["_run"]
    assert about["random_seed"] == saved[NAME]["meta"]["random_seed"] == 0
    assert "torch" in about["packages"]
    assert "git_sha" in about
    assert about["environment"]["id"] == saved[NAME]["env"]["name"]
    assert json.loads((root / f"{NAME}_t0_spec.json").read_text()) == {
        NAME: saved[NAME]
    }


@pytest.mark.slow
def test_a_seed_on_the_command_line_is_recorded_and_gives_the_same_rows(
    folder,
):
    """The second run is made by run_lab.py, of the first run's own spec file."""
    write_spec(folder, ppo(env__max_frame=500))
    assert call(command(folder, "train", "--seed", "7"), folder).code == 0
    first = run_folder(folder)
    rows = repeatable(rows_file(folder))
    assert (
        json.loads((first / f"{NAME}_spec.json").read_text())[NAME]["meta"][
            "random_seed"
        ]
        == 7
    )
    args = [
        str(first / f"{NAME}_spec.json"),
        NAME,
        "train",
        "--data",
        str(folder / "again"),
    ]
    done = call([sys.executable, str(ROOT / "run_lab.py"), *args], folder)
    assert done.outcome == (0, "")
    (again,) = (folder / "again").glob("*/info/*_session_df_train.csv")
    assert repeatable(again) == rows


@pytest.mark.slow
def test_a_seed_is_drawn_and_written_down_where_none_is_given(folder):
    write_spec(folder, ppo(meta__random_seed=None, env__max_frame=500))
    assert call(command(folder, "train"), folder).code == 0
    saved = json.loads((run_folder(folder) / f"{NAME}_spec.json").read_text())
    seed = saved[NAME]["meta"]["random_seed"]
    assert isinstance(seed, int)
    assert saved["_run"]["random_seed"] == seed


@pytest.mark.slow
def test_dev_runs_short_and_checked(folder):
    write_spec(folder, ppo(meta__max_session=4, env__max_frame=1_000_000))
    run(folder, "dev")
    assert trial_metrics(folder)["max_session"] <= 2
    assert len(repeatable(rows_file(folder))) > 4


@pytest.mark.slow
def test_help_and_spec_check_answer_at_once(tmp_path):
    """Bounds far above what they take: only an import that should not be there reaches
    them."""
    path = write_spec(tmp_path, ppo())
    lab = command(tmp_path, "train")[0]
    subprocess.run([lab, "--help"], check=True, capture_output=True, timeout=4)
    subprocess.run(
        [lab, "spec", "check", str(path)], check=True, capture_output=True, timeout=10
    )


@pytest.mark.slow
def test_a_run_in_a_folder_with_odd_characters_is_like_any_other(folder):
    odd = folder / "my runs [bold] 100%"
    write_spec(odd, ppo(env__max_frame=500))
    shutil.copytree(folder / "data", odd / "data")
    done = call(command(odd, "train"), odd)
    assert (done.code, done.err) == (0, "")
    assert str(run_folder(odd)) in done.out
