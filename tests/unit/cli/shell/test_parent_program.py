"""Options for scripts and long runs: documents, saved evaluations, logs, a command at
the end."""

import json
import logging
import os
import select
import shutil

import pytest

from slm_lab.cli.shell import parent_program
from slm_lab.core.process import LOG_LEVEL
from slm_lab.studies.run import PreparedRun
from tests.faults.lab import (
    PATIENCE,
    call,
    call_here,
    command,
    lab,
    run_folder,
    write_spec,
)
from tests.support import ppo
from tests.unit.cli.trained import fingerprint, lab_run

pytestmark = pytest.mark.medium

TALKING = """
import atexit, os
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

print("import")

class Talking(CartPoleEnv):
    def reset(self, **about):
        os.write(1, b"episode\\n")  # as a library in C does
        return super().reset(**about)

atexit.register(print, "bye")
gymnasium.register("Talking-v0", Talking, max_episode_steps=50)
"""


def test_an_evaluation_is_a_document_and_nothing_else(run):
    before = fingerprint(run)
    done = lab_run(run, "eval@latest", "--episodes", "3", "--json")
    document = json.loads(done.out)
    assert (done.code, fingerprint(run)) == (0, before)
    assert document["run"] == run_folder(run).name
    for agent in document["agents"]:
        assert agent["mean"] == sum(agent["returns"]) / 3
        assert (agent["episodes"], agent["agent"]) == (3, "best")


def test_an_evaluation_is_kept_in_the_run_folder(run):
    before = fingerprint(run)
    done = lab_run(run, "eval@latest", "--episodes", "3", "--save")
    file = run_folder(run) / "info" / "small_t0_evaluation.json"
    try:
        assert f"saved {file}" in done.both
        again = lab_run(run, "eval@latest", "--episodes", "3", "--save")
        assert f"replaced {file}" in again.both
        shown = json.loads(lab_run(run, "eval@latest", "--episodes", "3", "--json").out)
        assert json.loads(file.read_text()) == shown
    finally:
        file.unlink()
    assert fingerprint(run).keys() == before.keys()


def test_an_evaluation_is_not_saved_through_a_link(run, tmp_path):
    shutil.copytree(run_folder(run), tmp_path / "data" / "copy")
    (tmp_path / "data" / "copy" / "info").rename(tmp_path / "outside")
    (tmp_path / "data" / "copy" / "info").symlink_to(tmp_path / "outside")
    before = fingerprint(tmp_path / "outside")
    done = lab(tmp_path, "run", "eval@copy", "--episodes", "1", "--save")
    assert done.code == 1
    assert "is a symbolic link" in done.err
    assert fingerprint(tmp_path / "outside") == before


@pytest.mark.parametrize("name", ["latest", "a/b", "ppo:t3"])
def test_a_name_that_could_not_be_found_is_refused(name, tmp_path):
    write_spec(tmp_path, ppo())
    done = call_here(command(tmp_path, "train", "--name", name), tmp_path)
    assert (done.code, done.err.strip()) == (
        2,
        f"--name {name}: RUN could not find it; use no / : ~ @",
    )


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            "eval@some.zip",
            "--save works with a run folder; a shared run is not changed",
        ),
        ("train", "--save works only with eval@RUN, not with train"),
    ],
)
def test_an_evaluation_that_cannot_be_saved_is_one_line(mode, message, tmp_path):
    write_spec(tmp_path, ppo())
    done = call_here(command(tmp_path, mode, "--save"), tmp_path)
    assert (done.code, done.err.strip()) == (2, message)


def test_a_command_of_the_user_is_run_at_the_end(tmp_path):
    write_spec(tmp_path, ppo(env__max_frame=200))
    told = (
        'echo "$SLM_LAB_RUN ended with $SLM_LAB_EXIT_CODE" > told; echo spoken; exit 3'
    )
    done = call(command(tmp_path, "train", "--json", "--notify", told), tmp_path)
    assert done.code == 0
    assert json.loads(done.out)["exit_code"] == 0, (
        "the command's own output is elsewhere"
    )
    assert (tmp_path / "told").read_text() == f"{run_folder(tmp_path)} ended with 0\n"
    assert "spoken\n" in done.err
    assert "ended with 3" in done.err


def test_the_command_after_an_evaluation_knows_the_run(run, tmp_path):
    told = f'echo "$SLM_LAB_RUN" > {tmp_path}/told'
    assert lab_run(run, "eval@latest", "--episodes", "1", "--notify", told).code == 0
    assert (tmp_path / "told").read_text() == f"{run_folder(run).absolute()}\n"


@pytest.mark.parametrize(("mode", "code"), [("eval@nothing", 3), ("train", 1)])
def test_the_command_is_run_after_a_failure_too(mode, code, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(PreparedRun, "start", broken)
    write_spec(tmp_path, ppo())
    told = f'echo "$SLM_LAB_EXIT_CODE" > {tmp_path}/told'
    done = call_here(command(tmp_path, mode, "--notify", told), tmp_path)
    assert (done.code, (tmp_path / "told").read_text()) == (code, f"{code}\n")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(parent_program, "TIMEOUT", 1.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    parent_program.notify_of(f"sleep {10 * PATIENCE:g} > {pipe}; true", None, 0)
    assert "did not end in 1 s, and was killed" in capfd.readouterr().err
    closed = select.poll()
    closed.register(reader)
    assert closed.poll(1000 * PATIENCE) == [(reader, select.POLLHUP)]
    os.close(reader)


@pytest.mark.parametrize("mode", ["train", "eval@latest"])
def test_output_of_an_environment_is_not_in_a_document(mode, tmp_path):
    (tmp_path / "talking.py").write_text(TALKING)
    write_spec(tmp_path, ppo(env__name="Talking-v0", env__max_frame=200))
    words = "--import", "talking", "--json"
    if mode != "train":
        assert (
            call(command(tmp_path, "train", *words[:2], "--quiet"), tmp_path).code == 0
        )
        words = "--trust", "--json", "--episodes", "1"
    done = call(command(tmp_path, mode, *words), tmp_path)
    assert json.loads(done.out)["run"] == run_folder(tmp_path).name
    assert "import\n" in done.err
    assert "episode\n" in done.err
    assert "bye\n" in done.err


def test_a_document_of_a_mode_that_has_none_is_refused(run):
    done = lab_run(run, "enjoy@latest", "--json")
    assert (done.code, done.out) == (2, "")
    assert "--json works only with train" in done.err


@pytest.mark.parametrize(("level", "is_logged"), [("info", True), ("warning", False)])
def test_the_level_of_the_logs_is_chosen(level, is_logged, tmp_path, monkeypatch):
    monkeypatch.delenv(LOG_LEVEL, raising=False)
    before = logging.getLogger("slm_lab").level
    try:
        write_spec(tmp_path, ppo(env__max_frame=200))
        done = call_here(command(tmp_path, "train", "--log-level", level), tmp_path)
    finally:
        logging.getLogger("slm_lab").setLevel(before)
    assert done.code == 0
    logs = "".join(file.read_text() for file in run_folder(tmp_path).glob("log/*.log"))
    assert ("checkpoint at frame 200: state" in logs) is is_logged
    assert ("; return " in logs) is is_logged


def test_a_comparison_is_a_document_and_nothing_else(tmp_path):
    write_spec(tmp_path, ppo(env__max_frame=200))
    words = [
        "compare",
        str(tmp_path / "spec.json"),
        "small",
        "--modes",
        "synced",
        "--workers",
        "1",
    ]
    done = lab(tmp_path, *words, "--seeds", "1", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert [variant["mode"] for variant in document["variants"]] == ["false", "synced"]
    assert len(document["trainings"]) == 2
    assert len(document["graphs"]) >= 1
