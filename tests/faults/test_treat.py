"""`slm-lab doctor RUN --treat` from beginning to end: real trainings, killed and
resumed."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from slm_lab.records.overview import overviews_in
from slm_lab.storage.run_dir import origin_of
from tests.faults.lab import (
    LAB,
    NAME,
    call,
    lab,
    repeatable,
    run_here,
    started_as,
    wait_until,
    write_spec,
)
from tests.support import made_once, ppo

SPEC = ppo(
    env__max_frame=6000,
    env__max_t=5,
    meta__random_seed=3,
    meta__log_frequency=100,
    meta__keep_checkpoints=[2000],
    agent__net__optim_spec={"name": "Adam", "lr": 0.003},
)
"""A time limit cuts its episodes short."""
CURE = "env.max_t=null"

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def ill(tmp_path_factory):
    """A folder with an ill run."""

    def make(folder):
        write_spec(folder, SPEC)
        run_here(folder, "train", "--name", "ill")

    return made_once(tmp_path_factory, "ill", make)


@pytest.fixture
def folder(ill, tmp_path):
    return shutil.copytree(ill, tmp_path / "folder")


def treated(folder, *options):
    """The words of the command."""
    data = str(folder / "data")
    words = ("doctor", "ill", "--treat", "--frames", "4000", "--data", data)
    return [str(LAB), *words, *options]


def treatment_in(folder):
    (found,) = (folder / "data").glob(f"{NAME}_treat_*")
    return found


def result_of(folder):
    """The result of the treatment, without its folders."""
    (file,) = treatment_in(folder).glob("*_treat.json")
    result = json.loads(file.read_text())
    for effect in result["effects"]:
        effect.pop("folder")
    return result


def rows_of(root):
    (rows,) = root.glob("info/*_train.csv")
    return repeatable(rows)


def test_a_run_is_cured_by_a_fork_from_before_its_illness(folder):
    done = call(treated(folder, "--json"), folder)
    assert done.code == 0
    assert done.err == "with 1 seed a remedy may look better by chance\n"
    document = json.loads(done.out)
    assert document["findings"][0]["what"] == "a time limit cuts every episode short"
    assert document["findings"][0]["remedies"] == [[CURE]]
    treatment = document["treatment"]
    assert treatment["cured"]
    assert treatment["set"] == [CURE]
    assert treatment["ended"]
    assert "cured by -s env.max_t=null: return " in treatment["sentence"]
    best = treatment["effects"][0]
    assert (best["verdict"], best["from_frame"], best["until_frame"]) == (
        "cured",
        0,
        4000,
    )
    assert best["untreated"] == 5.0
    assert best["return"] > 10
    assert (treatment_in(folder) / f"{NAME}_treat.png").is_file()
    listed = {entry.run: entry for entry in overviews_in(folder / "data")}
    overview = listed[treatment_in(folder).name]
    assert overview.status == "done"
    assert re.fullmatch(rf"treatment of {NAME}_\w+, 1 training", overview.mode)
    # what trained is a fork of the run, and the same as one by hand
    words = ("--frame", 0, "-s", CURE, "--data", folder / "data", "--name", "by hand")
    assert lab(folder, "fork", "ill", *words).code == 0
    tried = Path(best["folder"])
    origin = origin_of(tried / f"{NAME}_spec.json")
    assert origin["forked_from"]["frame"] == 0
    assert origin["note"] == "tried for: a time limit cuts every episode short"
    by_hand = next(
        file.parent
        for file in (folder / "data").glob(f"{NAME}_2*/{NAME}_spec.json")
        if origin_of(file)["name"] == "by hand"
    )
    until = rows_of(tried)
    assert until == rows_of(by_hand)[: len(until)]
    # the cure is a run that goes on
    assert lab(folder, "run", f"train@{tried}").code == 0
    assert rows_of(tried) == rows_of(by_hand)


@pytest.mark.slow
def test_a_treatment_that_is_killed_goes_on_with_the_same_command(folder, tmp_path):
    killed = shutil.copytree(folder, tmp_path / "killed")
    done = call(treated(folder, "--jobs", "1"), folder)
    assert done.code == 0
    with started_as(killed, treated(killed, "--jobs", "1")) as running:
        wait_until(lambda: list(killed.glob("data/*_treat_*/*/info/*_train.csv")))
        os.kill(running.pid, signal.SIGKILL)
        running.end()
    again = call(treated(killed), killed)
    assert (again.code, again.err) == (0, "")
    whole = result_of(folder)
    resumed = result_of(killed)
    assert resumed["effects"] == whole["effects"]
    # a third time it only shows the result
    trained = sorted(killed.glob("data/*_treat_*/*/"))
    shown = call(treated(killed), killed)
    assert resumed["sentence"] in shown.out
    assert sorted(killed.glob("data/*_treat_*/*/")) == trained


@pytest.mark.slow
def test_ctrl_c_saves_and_names_the_command_that_goes_on(folder):
    with started_as(folder, treated(folder, "--jobs", "1")) as running:
        wait_until(lambda: list(folder.glob("data/*_treat_*/*/info/*_train.csv")))
        running.signal_group(signal.SIGINT)
        done = running.end()
    assert done.code == 130
    text = " ".join(done.out.split())
    assert "resume with: slm-lab doctor" in text
    assert f"--treat --frames 4000 --data {folder}" in text
    again = call(treated(folder), folder)
    assert again.code == 0
    assert "cured by -s env.max_t=null" in again.out


WRONG = {
    "--frames and --jobs work only with --treat": ["ill", "--frames", "100"],
    "--treat needs a run": ["--treat"],
    "there is no run folder nobody": ["nobody", "--treat"],
}


@pytest.mark.parametrize("message", WRONG)
def test_bad_input_is_one_line(folder, message):
    done = lab(folder, "doctor", *WRONG[message], "--data", folder / "data")
    assert done.code in (2, 3)
    assert message in " ".join(done.err.split())
    assert not list((folder / "data").glob("*_treat_*"))
