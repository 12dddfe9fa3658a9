"""Run folders of an older format: they are read, and not trained."""

import json

import pytest

from slm_lab.records.playable_run import NORM_PLACE_SINCE
from slm_lab.storage.manifest import FORMAT, previous_path, read_manifest
from tests.faults.lab import NAME, call_here, command, manifest, run_folder
from tests.support import soft
from tests.unit.cli.trained import fingerprint, lab_run, table, trained

OLDER = FORMAT - 1


@pytest.fixture
def older(copy):
    """As written by a version of the lab without a format number, and with fewer
    keys."""
    spec = run_folder(copy) / f"{NAME}_spec.json"
    content = json.loads(spec.read_text())
    known = (
        "random_seed",
        "git_sha",
        "packages",
        "set",
        "mode",
        "imports",
        "spec_file",
    )
    content["_run"] = {key: content["_run"][key] for key in known}
    spec.write_text(json.dumps(content))
    for session in (0, 1):
        saved = json.loads(manifest(copy, session).read_text())
        kept = ("frame", "serial", "finished", "files")
        old = {"format": OLDER, **{key: saved[key] for key in kept}, "rows_size": 10}
        manifest(copy, session).write_text(json.dumps(old))
    return copy


def test_an_older_run_is_not_trained_and_one_line_gives_the_reason_and_fix(older):
    before = fingerprint(run_folder(older) / "info")
    done = call_here(command(older, "train@latest", "-s", "env.max_frame=900"), older)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith(str(run_folder(older)))
    assert "has an older format" in line
    assert "start a new run; eval@, enjoy@ and plot still read this one" in line
    assert fingerprint(run_folder(older) / "info") == before


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
@pytest.mark.parametrize("which", ["best", "latest"])
def test_the_agents_of_an_older_run_are_played(older, copy, mode, which):
    done = lab_run(older, mode, "--episodes", "2", "--which", which)
    assert done.code == 0, done.both


@pytest.mark.medium
def test_crossq_of_an_older_run_is_built_as_it_was(tmp_path):
    """Its spec does not say where the norm is; in that version it was before the
    activation."""
    before = soft("CrossQ", env__max_frame=200, agent__net__norm_place="before")
    folder = trained(tmp_path, before)
    played = table(lab_run(folder, "eval@latest", "--episodes", "2").both)
    file = run_folder(folder) / f"{NAME}_spec.json"
    content = json.loads(file.read_text())
    del content[NAME]["agent"]["net"]["norm_place"]
    file.write_text(json.dumps(content))
    refused = lab_run(folder, "eval@latest", "--episodes", "2")
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    content["_run"]["format"] = NORM_PLACE_SINCE - 1
    file.write_text(json.dumps(content))
    again = lab_run(folder, "eval@latest", "--episodes", "2")
    assert again.code == 0, again.both
    assert table(again.both) == played


def test_an_older_run_is_plotted(older, tmp_path):
    done = call_here(
        [
            *command(older, "")[:1],
            "plot",
            str(run_folder(older)),
            "--out",
            str(tmp_path),
        ],
        older,
    )
    assert (done.code, done.err) == (0, "")
    assert list(tmp_path.glob("*.png"))


def test_a_newer_format_is_refused(copy):
    saved = json.loads(manifest(copy).read_text())
    for file in (manifest(copy), previous_path(manifest(copy))):
        file.write_text(json.dumps({**saved, "format": FORMAT + 1}))
    for mode in ("eval@latest", "train@latest"):
        done = lab_run(copy, mode)
        assert done.code == 1
        refusal = f"it has format {FORMAT + 1}, this version reads {FORMAT}"
        assert f"{refusal}: update slm-lab" in done.err


@pytest.mark.parametrize("gone", ["frame", "serial", "finished", "files"])
def test_an_older_manifest_without_what_an_evaluation_needs_is_reported(older, gone):
    saved = json.loads(manifest(older).read_text())
    del saved[gone]
    manifest(older).write_text(json.dumps(saved))
    done = lab_run(older, "eval@latest", "--session", "0")
    assert done.code == 1
    assert manifest(older).name in done.err


def test_a_current_manifest_is_read_back_whole(copy):
    found = read_manifest(manifest(copy))
    assert json.loads(found.to_json())["format"] == FORMAT
    assert found.rows
