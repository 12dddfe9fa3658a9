"""A Session that fails: the others continue, and the failure is reported."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from slm_lab.core.process import STOP_SIGNALS
from slm_lab.storage.checkpoint import read_state
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    NAME,
    all_gone,
    call,
    call_here,
    command,
    manifest,
    repeatable,
    rows_file,
    run_folder,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo

HANG = """
            pathlib.Path("reaching").write_text(str(os.getpid()))
            os.rename("reaching", "reached")
            while True:
                signal.pause()
"""


PLUG_IN = """
import multiprocessing, os, pathlib, signal
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Fragile(CartPoleEnv):
    count = 0

    def step(self, action):
        self.count += 1
        if self.count == 100 and multiprocessing.current_process().name == "{victim}":
            {what}
        return super().step(action)

gymnasium.register("Fragile-v0", entry_point=Fragile)
"""
RAISE = 'raise ZeroDivisionError("the pole broke")'
LEAVE = "os._exit(3)"


def fragile(folder, what, victim="session-1", **changes):
    """A spec of two Sessions, in whose environment something happens to one of them."""
    (folder / "fragile.py").write_text(PLUG_IN.format(what=what, victim=victim))
    write_spec(folder, ppo(env__name="Fragile-v0", meta__max_session=2, **changes))
    return ["--import", "fragile"]


def assert_only_session_1_failed(folder, done, exit_code):
    assert done.code == 1
    assert f"Session 1 failed at frame 396 (exit code {exit_code})" in done.err
    assert "1 of 2 Sessions failed" in done.err
    metrics = trial_metrics(folder)
    assert (metrics["num_sessions"], metrics["max_session"]) == (1, 2)
    assert metrics["rests_on"]["total_reward_ma"] == 1
    assert [session["ending"] for session in metrics["sessions"]] == [
        "finished",
        "failed",
    ]
    assert metrics["sessions"][1]["exit_code"] == exit_code
    assert len(repeatable(rows_file(folder, 0))) == 1 + 10
    assert (
        run_folder(folder) / f"{NAME}_t0_trial_graph_mean_returns_vs_frames.png"
    ).exists()


@pytest.mark.slow
def test_an_exception_in_one_session_is_reported_and_the_other_continues(folder):
    done = call(command(folder, "train", *fragile(folder, RAISE)), folder)
    assert_only_session_1_failed(folder, done, exit_code=1)
    assert "Traceback" in done.err
    assert "ZeroDivisionError: the pole broke" in done.err
    log = (run_folder(folder) / "log" / f"{NAME}_t0_s1.log").read_text()
    assert "the pole broke" in log


@pytest.mark.slow
def test_a_session_that_exits_without_a_result_has_failed(folder):
    done = call(command(folder, "train", *fragile(folder, LEAVE)), folder)
    assert_only_session_1_failed(folder, done, exit_code=3)


@pytest.mark.slow
def test_a_trial_of_which_every_session_fails_says_so(folder):
    fragile(folder, RAISE, victim="session-0")
    args = command(folder, "train", "--import", "fragile", "-s", "meta.max_session=1")
    done = call(args, folder)
    assert done.code == 1
    assert done.err.count("Traceback") == 1
    assert "1 of 1 Sessions failed" in done.err
    assert trial_metrics(folder)["num_sessions"] == 0


@pytest.mark.slow
def test_a_random_agent_that_fails_costs_no_training(folder):
    """Its return is the zero of every strength: without it, these have a reason, not a
    value."""
    done = call(
        command(folder, "train", *fragile(folder, RAISE, victim="random-baseline")),
        folder,
    )
    assert done.code == 0
    metrics = trial_metrics(folder)
    assert metrics["total_reward_ma"] is not None
    assert metrics["strength"] is None
    assert metrics["reasons"]["strength"]


@pytest.mark.slow
def test_a_failed_session_continues_when_the_run_is_resumed(folder):
    """The fault is fixed by then. It continues at the frame of the failure. The
    finished Session is left alone."""
    options = fragile(folder, RAISE)
    assert call(command(folder, "train", *options), folder).code == 1
    finished = rows_file(folder, 0).stat().st_mtime_ns
    assert read_manifest(manifest(folder, 1)).frame == 396
    fragile(folder, "pass")
    assert call(command(folder, "train@latest", *options), folder).code == 0
    assert rows_file(folder, 0).stat().st_mtime_ns == finished
    assert trial_metrics(folder)["num_sessions"] == 2
    assert len(repeatable(rows_file(folder, 1))) == 1 + 10


@pytest.mark.medium
def test_a_loss_that_is_not_finite_is_explained_and_the_last_checkpoint_is_intact(
    folder,
):
    """The rows come before the first update, whose huge step makes the second one's
    loss."""
    spec = ppo(
        agent__net__optim_spec={"name": "GlobalAdam", "lr": 1e30},
        meta__log_frequency=20,
    )
    write_spec(folder, spec)
    done = call_here(command(folder, "train"), folder)
    assert done.code == 1
    assert "Traceback" not in done.err
    frame = int(re.search(r"at frame (\d+);", done.err)[1])
    assert f"failed at frame {frame}" in done.err
    for word in ("obs", "reward", "min", "mean", "max"):
        assert word in done.err
    saved = Path(re.search(r"the state is in (.*\.pt)", done.err)[1])
    assert saved.parent == run_folder(folder) / "model"
    found = read_manifest(manifest(folder))
    assert f"the last checkpoint, at frame {found.frame}, is intact" in done.err
    assert 0 < found.frame <= frame
    assert read_state(saved.parent, found.files["state"])["frame"] == found.frame
    assert json.loads((run_folder(folder) / f"{NAME}_spec.json").read_text())
    last = done.out.splitlines()[-1]
    assert "Session 0: resuming would repeat it" in last
    assert "lower agent.net.optim_spec.lr, or" in last
    assert "resume with" not in done.out
    again = call_here(command(folder, "train@latest"), folder)
    assert again.code == 1
    assert "the last training diverged, and resuming would repeat it" in again.out


@pytest.mark.slow
def test_a_session_killed_by_a_signal_is_reported_and_the_other_trains_on(
    folder,
):
    options = fragile(folder, HANG)
    with started(folder, "train", *options) as running:
        wait_until((folder / "reached").exists)
        process = wait_until(lambda: running.session(1))
        assert int((folder / "reached").read_text()) == process.pid
        process.kill()
        done = running.end()
    assert_only_session_1_failed(folder, done, exit_code=-9)
    assert "signal 9" in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_second_ctrl_c_ends_a_run_whose_session_hangs(number, folder):
    with started(folder, "train", *fragile(folder, HANG)) as running:
        wait_until((folder / "reached").exists)
        children = running.children()
        running.process.send_signal(number)
        # it waits for the Session that hangs
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(1.0)
        running.process.send_signal(number)
        done = running.end()
    assert done.code == 130
    assert "Traceback" not in done.err
    wait_until(lambda: all_gone(children), timeout=3)
