"""Run folders from Python."""

import csv
import shutil

import numpy as np
import pytest

import slm_lab
from slm_lab.core.errors import SpecError, UsageError


@pytest.fixture
def run(folder):
    return slm_lab.load_run(folder)


@pytest.mark.parametrize(
    ("attribute", "kind"), [("rows", "train"), ("eval_rows", "eval")]
)
def test_rows_are_those_of_every_sessions_file(run, folder, attribute, kind):
    table = getattr(run, attribute)
    assert len(table)
    for session in (0, 1):
        (file,) = folder.glob(f"info/*_s{session}_session_df_{kind}.csv")
        with file.open() as lines:
            written = list(csv.DictReader(lines))
        own = table[table.session == session]
        frames = [float(row["frame"]) for row in written]
        assert own.frame.tolist() == frames
        returns = [float(row["total_reward"] or "nan") for row in written]
        np.testing.assert_array_equal(own.total_reward, returns)


def test_metrics_and_spec_are_those_of_the_folder(run):
    assert run.metrics["final_return"] > 0
    assert run.spec["env"]["name"] == "CartPole-v1"
    assert run.name == "small"


def test_the_plot_has_a_line_for_each_session_and_their_mean(run):
    figure = run.plot()
    names = [trace.name for trace in figure.data]
    assert "each Session" in names
    assert any("mean ± 1 std of 2 Sessions" in (name or "") for name in names)
    assert "small on CartPole-v1" in figure.layout.title.text


def test_a_run_gives_its_agents(run, folder):
    assert run.agent(which="latest", session=1).frame == 1000
    assert run.agent().folder == folder


def test_a_run_without_rows_can_be_read(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "small_5")
    shutil.rmtree(copied / "info")
    shutil.rmtree(copied / "model")
    (copied / "small_t0_trial_metrics_scalar.json").unlink()
    run = slm_lab.load_run(copied)
    assert run.rows.empty
    assert run.metrics == {}
    assert run.plot().data is not None


def test_damaged_metrics_are_refused_with_the_name_of_their_file(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "small_6")
    file = copied / "small_t0_trial_metrics_scalar.json"
    file.write_text("{")
    with pytest.raises(SpecError, match=file.name):
        _ = slm_lab.load_run(copied).metrics


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a run"):
        slm_lab.load_run(tmp_path)


def test_tags_and_a_note_are_added_and_kept_by_a_shared_run(trained, tmp_path):
    copied = shutil.copytree(trained[0] / "data", tmp_path / "data")
    run = slm_lab.load_run("latest", data=copied)
    assert (run.tags, run.note) == ((), "")
    run.annotate(add=["good", "old"], note="by hand")
    run.annotate(remove="old")
    assert (run.tags, run.note) == (("good",), "by hand")
    file = tmp_path / "shared.zip"
    run.agent().export(file)
    shared = slm_lab.load_run(file)
    assert (shared.tags, shared.note) == (("good",), "by hand")
    with pytest.raises(UsageError, match=r"shared\.zip is a shared run"):
        shared.annotate(add="more")
