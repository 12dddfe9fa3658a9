"""Hogwild! workers that are killed, raise, hang or are stopped: what they share
survives."""

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.run_dir import RunDir
from tests.faults.lab import (
    NAME,
    all_gone,
    call,
    call_here,
    command,
    interrupt,
    manifest,
    row_count,
    rows_file,
    run_folder,
    run_here,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import actor_critic, soft

PLUG_IN = """
import multiprocessing, os, pathlib, signal
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Fragile(CartPoleEnv):
    count = 0

    def step(self, action):
        self.count += 1
        victim = multiprocessing.current_process().name == "session-1"
        over = once and pathlib.Path("broken").exists()
        if victim and self.count == 300 and not over:
            pathlib.Path("broken").touch()
            {what}
        return super().step(action)

once = {once}
gymnasium.register("Fragile-v0", entry_point=Fragile)
"""


KILLS = 10


RAISE = 'raise ZeroDivisionError("the pole broke")'


HANG = """
            while True:
                signal.pause()
"""


def fragile(folder, what, once=True, **changes):
    (folder / "fragile.py").write_text(PLUG_IN.format(what=what, once=once))
    write_spec(folder, workers(env__name="Fragile-v0", **changes))
    return ["--import", "fragile"]


WORKERS = 2
MODES = ("shared", "synced")
STOPPED = 10.0
"""Seconds within which all workers have ended after Ctrl-C.

It takes less than two if each has a core, but the machine may be busy."""


def workers(mode="synced", make=actor_critic, **changes):
    """A spec that takes some seconds, with a checkpoint each second."""
    together = {
        "meta__distributed": mode,
        "meta__max_session": WORKERS,
        "meta__save_interval": 0,
    }
    sizes = {"env__max_frame": 100_000, "meta__log_frequency": 500}
    return make(**{**together, **sizes, **changes})


def all_run(folder):
    """Whether every worker has written a row and been saved."""
    return all(
        row_count(folder, s) and manifest(folder, s).exists() for s in range(WORKERS)
    )


def assert_clocks_never_went_back(folder, max_frame=None):
    """In no worker's rows; with `max_frame`, they went there together."""
    last = []
    for session in range(WORKERS):
        rows = read_rows(rows_file(folder, session))
        frame = rows["frame"]
        total = rows["total_frame"]
        assert (frame[1:] > frame[:-1]).all()
        assert (total[1:] >= total[:-1]).all()
        assert (rows["wall_t"][1:] >= rows["wall_t"][:-1]).all()
        assert (total >= frame).all()
        last.append((frame[-1], total[-1]))
    if max_frame is not None:
        saved = [read_manifest(manifest(folder, s)).frame for s in range(WORKERS)]
        assert max(total for _, total in last) >= max_frame
        assert max_frame <= sum(saved) <= max_frame + 4 * WORKERS


def assert_nothing_left(pids):
    """In shared memory; torch names its files after the process that made them."""
    left = [path.name for path in Path("/dev/shm").glob("torch_*")]
    assert not [name for name in left if int(name.split("_")[1]) in pids]


def kill_one(running, folder, session):
    """kill -9 of a worker, which must be there."""
    process = wait_until(
        lambda: running.session(session) or running.process.poll() is not None
    )
    if process is not True:
        process.kill()
        wait_until(lambda: all_gone([process]))
    return process


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_only_its_episodes_are_lost(folder):
    write_spec(folder, workers(env__max_frame=50_000))
    with started(folder) as running:
        wait_until(lambda: row_count(folder, 0) > 2)
        before = row_count(folder, 0)
        kill_one(running, folder, 0)
        children = running.children()
        done = running.end()
        wait_until(lambda: all_gone(children), timeout=3)
    assert done.outcome == (0, "")
    why = "the process was killed by signal 9"
    assert f"Session 0 was restarted 1×, the last time because: {why}" in done.out
    assert_clocks_never_went_back(folder, 50_000)
    assert row_count(folder, 0) >= before
    assert restarts(folder) == [1, 0]
    log = (run_folder(folder) / "log" / f"{NAME}_t0_s0.log").read_text()
    assert f"WARNING slm_lab: Session 0: {why}" in log
    assert f"Session 0 is replaced: {why}" in log
    assert_nothing_left({running.pid, *(child.pid for child in children)})


def with_pause(running, seconds):
    """The random moment of a kill; nothing is waited for but the end of the run
    itself."""
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(seconds)


@pytest.mark.slow
def test_past_max_restart_the_others_continue_and_the_run_has_failed_until_resumed(
    folder,
):
    """The first worker is the one that saves what all have in common; then the second
    is."""
    write_spec(folder, workers(env__max_frame=300_000, meta__max_restart=0))
    with started(folder) as running:
        wait_until(lambda: all_run(folder))
        kill_one(running, folder, 0)
        done = running.end()
    assert done.code == 1
    assert "signal 9" in done.err
    assert "1 of 2 Sessions failed" in done.err
    assert "Traceback" not in done.err
    died_at = read_manifest(manifest(folder, 0)).frame
    again = call_here(command(folder, "train@latest"), folder)
    assert again.code == 1, "there is nothing left to train, and it is lost as before"
    assert "1 of 2 Sessions failed" in again.err
    assert read_manifest(manifest(folder, 0)).frame == died_at
    more = ("-s", "env.max_frame=400000", "--schedules", "hold")
    run_here(folder, "train@latest", *more)
    assert_clocks_never_went_back(folder, 400_000)
    assert read_manifest(manifest(folder, 0)).frame > died_at


def stop_once_all_step(running):
    """Ctrl-C after new rows of every worker; how the command ended."""
    folder = running.data
    before = [row_count(folder, s) for s in range(WORKERS)]
    wait_until(lambda: all(row_count(folder, s) > before[s] for s in range(WORKERS)))
    alive = [running.session(s) for s in range(WORKERS)]
    interrupt(running)
    wait_until(lambda: all_gone(alive), STOPPED)
    done = running.end()
    assert running.children() == []
    assert done.err == ""
    return done


def saved_frames(folder):
    return sum(read_manifest(manifest(folder, s)).frame for s in range(WORKERS))


def restarts(folder):
    return [session["restarts"] for session in trial_metrics(folder)["sessions"]]


@pytest.mark.medium
def test_ctrl_c_saves_all_workers_also_one_that_was_replaced(folder):
    write_spec(folder, workers(env__max_frame=100_000_000))
    with started(folder) as running:
        wait_until(lambda: all_run(folder))
        kill_one(running, folder, 0)
        assert stop_once_all_step(running).code == 130
    assert restarts(folder) == [1, 0]
    totals = [
        read_rows(rows_file(folder, s))["total_frame"][-1] for s in range(WORKERS)
    ]
    assert saved_frames(folder) >= max(totals)
    assert_clocks_never_went_back(folder)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_is_stopped_repeatedly_resumes_each_time(folder, mode):
    write_spec(folder, workers(mode, env__max_frame=100_000_000))
    frames = []
    for mode_of_run in ("train", "train@latest", "train@latest"):
        with started(folder, mode_of_run) as running:
            assert stop_once_all_step(running).code == 130
        frames.append(saved_frames(folder))
    assert frames == sorted(set(frames))
    last = frames[-1] + 20_000
    run_here(folder, "train@latest", "-s", f"env.max_frame={last}")
    assert_clocks_never_went_back(folder, last)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_parent_ends_its_workers_and_the_run_resumes_from_its_checkpoint(
    folder, mode
):
    """Off-policy: what was saved has segments of replay. Some kills come during a
    checkpoint."""
    make = {"make": lambda **changes: soft("SoftActorCritic", **changes)}
    write_spec(folder, workers(mode, env__max_frame=1_000_000, **make))
    rng = random.Random(1)
    for time_of_kill in range(5):
        with started(folder, "train@latest" if time_of_kill else "train") as running:
            before = row_count(folder)
            wait_until(lambda: row_count(folder) > before and all_run(folder))  # noqa: B023
            with_pause(running, rng.uniform(0, 1.5))
            children = running.children()
            os.kill(running.pid, signal.SIGKILL)
            running.process.wait()
            wait_until(lambda: all_gone(children), timeout=3)  # noqa: B023
            assert_nothing_left({running.pid, *(child.pid for child in children)})
        assert_clocks_never_went_back(folder)
    last = saved_frames(folder) + 5_000
    run_here(folder, "train@latest", "-s", f"env.max_frame={last}")
    assert_clocks_never_went_back(folder, last)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_workers_killed_at_ten_random_moments_are_all_replaced(folder, mode):
    write_spec(
        folder, workers(mode, env__max_frame=100_000_000, meta__max_restart=KILLS)
    )
    rng = random.Random(0)
    with started(folder) as running:
        for _ in range(KILLS):
            wait_until(lambda: all_run(folder))
            with_pause(running, rng.uniform(0, 1.0))
            kill_one(running, folder, rng.randrange(WORKERS))
        wait_until(lambda: all(running.session(s) for s in range(WORKERS)))
        interrupt(running)
        done = running.end()
        assert running.children() == []
    assert (done.code, done.err) == (130, "")
    assert sum(restarts(folder)) == KILLS
    assert_clocks_never_went_back(folder)


@pytest.mark.slow
def test_an_exception_in_a_step_has_the_worker_replaced(folder):
    done = call(command(folder, "train", *fragile(folder, RAISE)), folder)
    assert (done.code, done.err) == (0, "")
    assert restarts(folder) == [0, 1]
    log = (run_folder(folder) / "log" / f"{NAME}_t0_s1.log").read_text()
    assert "the pole broke" in log
    assert_clocks_never_went_back(folder, 100_000)


@pytest.mark.slow
def test_a_worker_that_fails_each_time_is_given_up_after_max_restart(folder):
    options = fragile(
        folder, RAISE, once=False, meta__max_restart=2, env__max_frame=300_000
    )
    done = call(command(folder, "train", *options), folder)
    assert done.code == 1
    assert "ZeroDivisionError: the pole broke" in done.err
    assert restarts(folder) == [0, 2]
    endings = [session["ending"] for session in trial_metrics(folder)["sessions"]]
    assert endings == ["finished", "failed"]
    assert_clocks_never_went_back(folder)


@pytest.mark.slow
def test_a_worker_that_hangs_does_not_keep_the_others_from_ending(folder):
    options = fragile(folder, HANG, env__max_frame=100_000_000)
    with started(folder, "train", *options) as running:
        wait_until((folder / "broken").exists)
        wait_until(lambda: row_count(folder, 0))
        interrupt(running)
        done = running.end(30)
        assert running.children() == []
    assert done.code == 130
    assert done.err.startswith("Session 1: its step did not end within 3 s of the stop")
    assert done.err.count("\n") == 1
    assert "the shared weights are saved" in done.err
    saved = read_manifest(manifest(folder))
    assert saved is not None
    assert saved.frame > 0
    of_all = read_manifest(
        RunDir(run_folder(folder), NAME).shared_by_training(0, 0).manifest
    )
    assert of_all.frame > saved.frame
    more = ("-s", f"env.max_frame={of_all.frame + 1000}")
    resumed = call(command(folder, "train@latest", *options, *more), folder)
    assert (resumed.code, resumed.err) == (0, "")
