"""Ctrl-C, SIGTERM, SIGHUP and a dead parent: everything is saved, and no process is
left."""

import fcntl
import os
import pty
import shlex
import shutil
import signal
import subprocess
import termios

import pytest

from slm_lab.core.process import STOP_SIGNALS
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    LAB,
    PATIENCE,
    Running,
    all_gone,
    call,
    command,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run_folder,
    run_here,
    started,
    started_as,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.slow

LONG = ppo(env__max_frame=6_000, meta__log_frequency=200)
"""Some seconds of training."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The rows of LONG."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_spec(folder, LONG)
    run_here(folder, "train")
    rows = repeatable(rows_file(folder))
    assert len(rows) == 1 + 30
    return rows


def resume_command(done):
    """Runs the command that the stopped run printed."""
    (line,) = (line for line in done.out.splitlines() if "resume with: " in line)
    words = shlex.split(line.partition("resume with: ")[2])
    assert words[:2] == ["slm-lab", "run"]
    return [str(LAB), *words[1:]]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stopped_run_resumes_like_an_uninterrupted_one(number, folder, uninterrupted):
    write_spec(folder, LONG)
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 5)
        running.signal_group(number)
        done = running.end()
    assert done.outcome == (130, "")
    saved = read_manifest(manifest(folder))
    assert 0 < saved.frame < LONG["env"]["max_frame"]
    assert not saved.finished
    assert trial_metrics(folder)["sessions"][0]["ending"] == "interrupted"
    assert repeatable(rows_file(folder)) == uninterrupted[: 1 + row_count(folder)]
    run_here(folder, "train@latest")
    assert read_manifest(manifest(folder)).finished
    assert repeatable(rows_file(folder)) == uninterrupted


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_to_the_parent_alone_stops_all_its_sessions(number, folder):
    write_spec(folder, {**LONG, "meta": {**LONG["meta"], "max_session": 3}})
    with started(folder) as running:
        wait_until(lambda: row_count(folder, 0) and row_count(folder, 1))
        running.process.send_signal(number)
        done = running.end()
    assert done.outcome == (130, "")
    endings = [session["ending"] for session in trial_metrics(folder)["sessions"]]
    assert endings == ["interrupted"] * 3


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_run_stopped_while_its_sessions_start_has_not_failed(number, folder):
    """The signal arrives as soon as the fork server has forked a process, which has no
    handler."""
    write_spec(folder, ppo())
    with started(folder) as running:
        wait_until(running.forked)
        running.signal_group(number)
        done = running.end()
    assert done.outcome == (130, "")
    run_here(folder, "train@latest")
    assert row_count(folder) == 10


def test_a_training_whose_terminal_is_closed_saves(folder):
    """The kernel sends SIGHUP to all its processes, and no output can be written any
    more."""
    write_spec(folder, LONG)
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        command(folder, "train"),
        cwd=folder,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(terminal)
    running = Running(process, folder)
    try:
        wait_until(lambda: row_count(folder) > 5)
        processes = running.children()
        os.close(master)
        assert process.wait(PATIENCE) == 130
        wait_until(lambda: all_gone(processes))
    finally:
        process.kill()
    assert read_manifest(manifest(folder)).frame >= 6 * 200
    assert trial_metrics(folder)["sessions"][0]["ending"] == "interrupted"


def test_a_training_under_nohup_survives_its_terminal(folder, uninterrupted):
    write_spec(folder, LONG)
    with started_as(folder, ["nohup", *command(folder, "train")]) as running:
        wait_until(lambda: row_count(folder) > 5)
        running.signal_group(signal.SIGHUP)
        assert running.end().code == 0
    assert repeatable(rows_file(folder)) == uninterrupted


def test_the_printed_command_works_for_plug_ins_and_folders_with_odd_characters(folder):
    odd = folder / "my runs [bold] 'x'"
    write_spec(
        odd, ppo(env__name="Mine-v0", env__max_frame=15_000, meta__log_frequency=500)
    )
    (odd / "mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v0', entry_point=CartPoleEnv)\n"
    )
    shutil.copytree(folder / "data", odd / "data")
    with started(odd, "train", "--import", "mine") as running:
        wait_until(lambda: row_count(odd) > 2)
        running.signal_group(signal.SIGINT)
        done = running.end()
    assert done.code == 130
    resumed = call(resume_command(done), odd)
    assert resumed.outcome == (0, "")
    assert read_manifest(manifest(odd)).finished


def test_no_process_outlives_a_parent_that_is_killed(folder):
    # so that the Random agent is measured beside the training
    env = {**LONG["env"], "max_t": 400}
    write_spec(folder, {**LONG, "env": env, "meta": {**LONG["meta"], "max_session": 2}})
    with started(folder) as running:
        wait_until(lambda: row_count(folder, 0) and row_count(folder, 1))
        wait_until(manifest(folder, 0).exists)
        children = running.children()
        assert len(running.forked()) >= 2
        os.kill(running.pid, signal.SIGKILL)
        running.process.wait()
        wait_until(lambda: all_gone(children), timeout=3)
    assert read_manifest(manifest(folder, 0)).frame > 0
    assert run_folder(folder).exists()


HANGS_AFTERWARDS = """
import threading, gymnasium, numpy as np
from pathlib import Path
class Late(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        if Path("data/.random_returns.lock").exists():
            threading.Event().wait()
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 9, False, {}
gymnasium.register("Late-v0", Late)
"""


def test_ctrl_c_skips_the_measurement_of_the_random_agent_at_once(folder):
    """After the training, whose result stands. The graphs are left for a resume."""
    (folder / "late.py").write_text(HANGS_AFTERWARDS)
    write_spec(folder, ppo(env__name="Late-v0"))
    with started(folder, "train", "--import", "late") as running:
        wait_until((folder / "data" / ".random_returns.lock").exists)
        assert len(running.forked()) == 1
        running.signal_group(signal.SIGINT)
        assert running.end().code == 130
    metrics = trial_metrics(folder)
    assert metrics["sessions"][0]["ending"] == "finished"
    assert metrics["random_return"] is None


def test_the_resume_command_that_a_stopped_run_prints_works_unchanged(
    folder, uninterrupted
):
    write_spec(folder, LONG)
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 5)
        running.signal_group(signal.SIGINT)
        done = running.end()
    resumed = call(resume_command(done), folder)
    assert (resumed.code, resumed.err) == (0, "")
    assert repeatable(rows_file(folder)) == uninterrupted
