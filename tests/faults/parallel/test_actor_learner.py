"""Actors and learners that are killed, raise, hang or are stopped: what was learned
survives."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.spec.load import load_spec
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask
from tests.faults.lab import (
    NAME,
    all_gone,
    call,
    call_here,
    command,
    interrupt,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run,
    run_folder,
    session_of,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo, soft


def run_and_suspend(folder, actor):
    """A run in this process's children, one of which hangs."""
    spec = load_spec(
        write_spec(folder, actors(meta__step_seconds=5.0, env__max_frame=400_000)),
        NAME,
    )
    run_dir = RunDir(folder / "data" / "run", NAME)
    for part in ("info", "model", "log", "graph"):
        (run_dir.root / part).mkdir(parents=True)
    hung = []

    def hang(status_board):
        if not hung and status_board.clock_slots[actor] > 1500:
            hung.append(session_of(os.getpid(), actor))
            hung[0].suspend()

    return Trial(TrialTask(spec, run_dir, 5), on_tick=hang).run(), hung


ACTORS = 2
STOPPED = 10.0
"""Seconds within which all have ended after Ctrl-C.

It takes less than two if each has a core, but the machine may be busy."""
ENDLESS = 100_000_000

PLUG_IN = """
import multiprocessing, pathlib, signal, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Fragile(CartPoleEnv):
    count = 0

    def step(self, action):
        self.count += 1
        obs, reward, *rest = super().step(action)
        name = multiprocessing.current_process().name
        if name == "session-1" and self.count >= {first}:
            {what}
        return obs, reward, *rest

def once():
    was_there = pathlib.Path("broken").exists()
    pathlib.Path("broken").touch()
    return not was_there

gymnasium.register("Fragile-v0", entry_point=Fragile)
"""
RAISE = 'raise ZeroDivisionError("the pole broke")'


def actors(make=ppo, count=ACTORS, flow=None, **changes):
    """A spec that takes some seconds."""
    together = {
        "meta__distributed": "actor_learner",
        "meta__max_session": count,
        "meta__actor_learner": flow or {},
    }
    sizes = {
        "env__max_frame": 30_000,
        "meta__log_frequency": 500,
        "meta__save_interval": 600,
    }
    return make(**{**together, **sizes, **changes})


def fragile(folder, what, first=300, **changes):
    """A spec in whose first actor something happens at each step from that one on."""
    (folder / "fragile.py").write_text(PLUG_IN.format(what=what, first=first))
    write_spec(folder, actors(env__name="Fragile-v0", **changes))
    return ["--import", "fragile"]


def sessions(folder):
    """How each Session ended, the learner first, with the frames that it counted."""
    return trial_metrics(folder)["sessions"]


def endings(folder):
    return [each["ending"] for each in sessions(folder)]


def restarts(folder):
    return [each["restarts"] for each in sessions(folder)]


def saved(folder):
    return read_manifest(manifest(folder))


def assert_trained_on_everything(folder, max_frame=30_000):
    """The learner has learned from the whole budget, and its clock never went back."""
    rows = read_rows(rows_file(folder))
    assert (rows["frame"][1:] > rows["frame"][:-1]).all()
    assert (rows["opt_step"][1:] >= rows["opt_step"][:-1]).all()
    assert max_frame <= rows["frame"][-1] <= max_frame + 16 * 4
    assert saved(folder).frame == rows["frame"][-1]
    assert saved(folder).finished


def assert_nothing_left(running, children):
    """Asserts that no process and no shared memory is left.

    Torch names its files after their process.
    """
    wait_until(lambda: all_gone(children), timeout=3)
    pids = {running.pid, *(child.pid for child in children)}
    left = [path.name for path in Path("/dev/shm").glob("torch_*")]
    assert not [name for name in left if int(name.split("_")[1]) in pids]


def learns(running, folder, rows=2):
    """The processes, once the learner has written some rows more and each actor
    acts."""
    before = row_count(folder)
    wait_until(
        lambda: row_count(folder) > before + rows or running.process.poll() is not None
    )
    assert running.process.poll() is None, running.end()
    return [
        wait_until(lambda s=session: running.session(s))
        for session in range(1 + ACTORS)
    ]


def finish(folder, *options):
    """Resumes the run and trains some frames more."""
    last = saved(folder).frame + 2000
    # what a plug-in registers must not stay here
    start = call_here
    if options:
        start = call
    done = start(
        command(folder, "train@latest", "-s", f"env.max_frame={last}", *options), folder
    )
    assert done.outcome == (0, "")
    assert_trained_on_everything(folder, last)
    return done


@pytest.mark.slow
def test_a_killed_actor_is_replaced_and_the_whole_budget_is_learned_from(folder):
    write_spec(folder, actors())
    with started(folder) as running:
        _, _, second = learns(running, folder)
        children = running.children()
        second.kill()
        done = running.end()
        assert_nothing_left(running, children)
    assert done.outcome == (0, "")
    assert "restarted 1×" in done.out
    assert (restarts(folder), endings(folder)) == ([0, 0, 1], ["finished"] * 3)
    assert_trained_on_everything(folder)


@pytest.mark.slow
def test_without_its_learner_a_training_ends_at_once_and_resumes_from_the_checkpoint(
    folder,
):
    write_spec(folder, actors(meta__save_interval=0, env__max_frame=ENDLESS))
    with started(folder) as running:
        alive = learns(running, folder)
        wait_until(manifest(folder).exists)
        children = running.children()
        alive[0].kill()
        wait_until(lambda: all_gone(alive), timeout=3)
        done = running.end()
        assert_nothing_left(running, children)
    assert done.code == 1
    assert "signal 9" in done.err
    assert "Traceback" not in done.err
    assert (restarts(folder), endings(folder)) == ([0, 0, 0], ["failed"] * 3)
    finish(folder)


@pytest.mark.medium
def test_ctrl_c_saves_what_was_learned_also_from_an_actor_that_was_replaced(folder):
    write_spec(folder, actors(env__max_frame=ENDLESS))
    with started(folder) as running:
        killed = learns(running, folder, rows=0)[2]
        killed.kill()
        wait_until(lambda: all_gone([killed]))
        alive = learns(running, folder, rows=0)
        children = running.children()
        interrupt(running)
        wait_until(lambda: all_gone(alive), STOPPED)
        done = running.end()
        assert_nothing_left(running, children)
    assert done.outcome == (130, "")
    assert (restarts(folder), endings(folder)) == ([0, 0, 1], ["interrupted"] * 3)
    assert saved(folder).frame >= read_rows(rows_file(folder))["frame"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("learn_queue", [1, 3 * ACTORS])
def test_past_max_restart_the_other_actors_play_the_whole_budget_and_the_run_has_failed(
    folder, learn_queue
):
    """Even if the learner wants more unrolls at once than one actor has room for."""
    write_spec(folder, actors(flow={"learn_queue": learn_queue}, meta__max_restart=0))
    with started(folder) as running:
        learns(running, folder)[1].kill()
        done = running.end()
    assert done.code == 1
    assert "signal 9" in done.err
    assert "Traceback" not in done.err
    assert (restarts(folder), endings(folder)) == (
        [0, 0, 0],
        ["finished", "failed", "finished"],
    )
    assert_trained_on_everything(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [ppo, lambda **changes: soft("SoftActorCritic", **changes)]
)
def test_a_killed_parent_ends_all_processes_and_the_run_resumes_from_its_checkpoint(
    folder, make
):
    write_spec(folder, actors(make, meta__save_interval=0, env__max_frame=ENDLESS))
    for time_of_kill in range(2):
        with started(folder, "train@latest" if time_of_kill else "train") as running:
            learns(running, folder)
            wait_until(manifest(folder).exists)
            children = running.children()
            os.kill(running.pid, signal.SIGKILL)
            running.process.wait()
            assert_nothing_left(running, children)
    finish(folder)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_an_actor_whose_environment_raises_once_is_replaced(folder, count):
    options = fragile(folder, f"if once(): {RAISE}", count=count)
    run(folder, "train", *options)
    assert restarts(folder) == [0, 1, 0][: 1 + count]
    log = (run_folder(folder) / "log" / f"{NAME}_t0_s1.log").read_text()
    assert "the pole broke" in log
    assert_trained_on_everything(folder)


@pytest.mark.slow
def test_actors_wait_for_a_slow_learner_and_memory_does_not_grow(folder):
    write_spec(
        folder, actors(agent__algorithm__training_epoch=30, env__max_frame=ENDLESS)
    )
    with started(folder) as running:
        everybody = learns(running, folder)
        before = [process.memory_info().rss for process in everybody]
        after = [
            process.memory_info().rss for process in learns(running, folder, rows=8)
        ]
        interrupt(running)
        assert running.end().code == 130
    for small, large in zip(before, after, strict=True):
        assert large < 1.05 * small + 4e6
    rows = read_rows(rows_file(folder))
    assert (rows["actor_wait_share"][2:] > 0.5).all()
    assert (rows["learner_wait_share"][2:] < 0.5).all()
    assert (rows["policy_lag_max"] <= 2 * ACTORS + 1).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [ppo, lambda **changes: soft("SoftActorCritic", **changes)]
)
def test_a_reward_that_is_not_a_number_is_one_clear_error_and_the_state_is_kept(
    folder, make
):
    """The episode continues, so the reward is learned from before the return is
    known."""
    options = fragile(folder, 'reward, rest[0] = float("nan"), False', make=make)
    done = call(command(folder, "train", *options), folder)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "Session 0 (learner) failed" in done.err
    assert "not finite" in done.err
    assert (restarts(folder), endings(folder)) == ([0, 0, 0], ["failed"] * 3)
    (kept,) = (run_folder(folder) / "model").glob("*_nonfinite_*")
    assert str(kept) in done.err.replace("\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        ppo,
        lambda **changes: soft(
            "SoftActorCritic", **{"env__name": "Pendulum-v1", **changes}
        ),
    ],
    ids=["rollouts", "replay"],
)
def test_in_one_process_a_resumed_run_equals_the_uninterrupted_one(folder, make):
    sizes = {"env__max_frame": 8000, "meta__log_frequency": 200}
    write_spec(folder, actors(make, flow={"serial": True}, **sizes))
    assert call(command(folder, "train", "--seed", "5"), folder).code == 0
    undisturbed = repeatable(rows_file(folder))
    shutil.rmtree(run_folder(folder))
    mode = "train"
    seed = ["--seed", "5"]
    for _ in range(2):
        with started(folder, mode, *seed) as running:
            before = row_count(folder)
            wait_until(lambda: row_count(folder) > before + 5)  # noqa: B023
            interrupt(running)
            done = running.end()
            assert done.code == 130
        assert 0 < saved(folder).frame < 8000
        mode = "train@latest"
        seed = []
    assert call(command(folder, "train@latest"), folder).code == 0
    assert repeatable(rows_file(folder)) == undisturbed


@pytest.mark.slow
def test_a_learner_that_has_lost_its_only_actor_saves_and_ends(folder):
    write_spec(folder, actors(count=1, meta__max_restart=0))
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 2)
        wait_until(lambda: running.session(1)).kill()
        done = running.end()
    assert done.code == 1
    assert "signal 9" in done.err
    assert "Traceback" not in done.err
    assert endings(folder) == ["failed", "failed"]
    assert 0 < read_rows(rows_file(folder))["frame"][-1] <= saved(folder).frame < 30_000
    finish(folder)


@pytest.mark.slow
def test_a_hanging_actor_is_detected_and_replaced(folder):
    result, hung = run_and_suspend(folder, actor=1)
    assert [each.restarts for each in result.sessions] == [0, 1, 0]
    assert [str(each.ending) for each in result.sessions] == ["finished"] * 3
    wait_until(lambda: all_gone(hung))


@pytest.mark.slow
def test_an_actor_that_hangs_does_not_keep_a_stop_from_saving(folder):
    hang = "if once():\n                while True: signal.pause()"
    options = fragile(folder, hang, env__max_frame=ENDLESS)
    with started(folder, "train", *options) as running:
        wait_until((folder / "broken").exists)
        learner = learns(running, folder)[0]
        interrupt(running)
        wait_until(lambda: all_gone([learner]), STOPPED)
        done = running.end()
        assert running.children() == []
    assert done.code == 130
    assert endings(folder) == ["interrupted"] * 3
    finish(folder, *options)
