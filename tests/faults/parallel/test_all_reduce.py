"""Ranks that are killed, hang, raise or are stopped: all continue together, or none."""

import os
import shutil
import signal

import pytest

from slm_lab.spec.load import load_spec
from slm_lab.storage.intact import settle
from slm_lab.storage.manifest import pending_path, read_manifest
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask
from tests.faults.lab import (
    NAME,
    all_gone,
    call,
    call_here,
    command,
    empty_run,
    interrupt,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run,
    run_folder,
    run_here,
    session_of,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import made_once, ppo, reinforce, soft

pytestmark = pytest.mark.medium

RANKS = 2


def ranks(make=ppo, **changes):
    """A spec that takes some seconds, with a checkpoint at every row."""
    together = {"meta__distributed": "all_reduce", "meta__max_session": RANKS}
    sizes = {
        "env__max_frame": 4000,
        "meta__log_frequency": 100,
        "meta__save_interval": 0,
    }
    horizon = {"agent__algorithm__time_horizon": 32} if make is ppo else {}
    return make(**{**together, **sizes, **horizon, **changes})


def parts(folder, session):
    """What a rank's newest checkpoint says of its files: two that are equal have the
    same sums."""
    return read_manifest(manifest(folder, session))


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of an uninterrupted training."""

    def make(folder):
        write_spec(folder, ranks())
        run_here(folder, "train", "--seed", "5")

    return made_once(tmp_path_factory, "ranks", make)


@pytest.fixture(scope="session")
def undisturbed(trained):
    """Its rows."""
    return repeatable(rows_file(trained))


def test_ranks_train_to_the_end_and_one_of_them_writes_the_rows(trained, undisturbed):
    folder = trained
    assert not rows_file(folder, 1).exists()
    last = dict(zip(undisturbed[0], undisturbed[-1], strict=True))
    assert (last["frame"], last["total_frame"]) == ("2000", "4000")
    assert [parts(folder, s).frame for s in range(RANKS)] == [2000, 2000]
    assert [parts(folder, s).finished for s in range(RANKS)] == [True, True]
    evaluated = call_here(command(folder, "eval@latest", "--which", "latest"), folder)
    assert evaluated.code == 0
    assert evaluated.out.count("2,000") == 1


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_rank_is_killed_all_restart_from_the_last_checkpoint(
    folder, undisturbed, victim
):
    write_spec(folder, ranks())
    with started(folder, "train", "--seed", "5") as running:
        wait_until(lambda: row_count(folder) > 5)
        before = running.children()
        process = wait_until(lambda: running.session(victim))
        process.kill()
        wait_until(lambda: row_count(folder) > 10 or running.process.poll() is not None)
        done = running.end()
    assert done.code == 0, done.err
    wait_until(lambda: all_gone([process, *before]))
    assert repeatable(rows_file(folder)) == undisturbed
    sessions = trial_metrics(folder)["sessions"]
    assert [each["restarts"] for each in sessions] == [1, 1]
    log = next((run_folder(folder) / "log").glob("*_s1.log")).read_text()
    assert (
        f"restarts: rank {victim} has ended: the process was killed by signal 9" in log
    )


@pytest.mark.slow
def test_resumed_ranks_end_like_uninterrupted_ones(folder, undisturbed):
    write_spec(folder, ranks())
    with started(folder, "train", "--seed", "5") as running:
        wait_until(lambda: row_count(folder) > 5)
        children = running.children()
        interrupt(running)
        done = running.end()
    assert done.code == 130
    wait_until(lambda: all_gone(children))
    assert 0 < parts(folder, 0).frame < 2000
    assert parts(folder, 0).serial == parts(folder, 1).serial
    run(folder, "train@latest")
    assert repeatable(rows_file(folder)) == undisturbed


@pytest.mark.slow
def test_whenever_the_parent_is_killed_the_run_can_be_resumed(folder, undisturbed):
    write_spec(folder, ranks())
    mode = "train"
    for rows in (3, 9, 15):
        with started(
            folder, mode, *(["--seed", "5"] if mode == "train" else [])
        ) as running:
            wait_until(lambda wanted=rows: row_count(folder) > wanted)
            children = running.children()
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            wait_until(lambda gone=children: all_gone(gone))
        mode = "train@latest"
    run(folder, mode)
    assert repeatable(rows_file(folder)) == undisturbed


BROKEN = """
import multiprocessing, pathlib, time, gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Fragile(CartPoleEnv):
    count = 0

    def step(self, action):
        self.count += 1
        obs, *rest = super().step(action)
        if multiprocessing.current_process().name == "session-1" and self.count == 100:
            {what}
        return obs, *rest

gymnasium.register("Fragile-v0", entry_point=Fragile)
"""


def fragile(folder, what, **changes):
    (folder / "fragile.py").write_text(BROKEN.format(what=what))
    write_spec(folder, ranks(env__name="Fragile-v0", **changes))
    return ["--seed", "5", "--import", "fragile"]


@pytest.mark.slow
def test_a_rank_whose_environment_raises_twice_ends_the_training(folder):
    options = fragile(
        folder, 'raise ZeroDivisionError("the pole broke")', meta__max_restart=1
    )
    done = call(command(folder, "train", *options), folder)
    assert done.code == 1
    assert "ZeroDivisionError: the pole broke" in done.err
    assert "ended because Session 1 ended" in done.err
    assert "2 of 2 Sessions failed" in done.err
    assert "rank 1 has ended: ZeroDivisionError: the pole broke" in done.out
    assert [each["restarts"] for each in trial_metrics(folder)["sessions"]] == [1, 1]


@pytest.mark.slow
def test_a_number_that_is_not_finite_ends_all_ranks_and_is_not_tried_again(folder):
    options = fragile(folder, 'obs = obs * float("nan")')
    done = call(command(folder, "train", *options), folder)
    assert done.code == 1
    assert "nan" in done.err
    assert [each["restarts"] for each in trial_metrics(folder)["sessions"]] == [0, 0]


@pytest.mark.slow
def test_a_hanging_rank_is_detected_and_all_ranks_restart(folder):
    # A fast machine plays 4,000 frames before the trial looks at the clock again.
    spec_path = write_spec(
        folder, ranks(env__max_frame=40_000, meta__step_seconds=10.0)
    )
    spec = load_spec(spec_path, NAME)
    assert call(command(folder, "train", "--seed", "5"), folder).code == 0
    expected = repeatable(rows_file(folder))
    run_dir = empty_run(folder)
    hung = []

    def hang(status_board):
        if not hung and status_board.clock_slots[1] > 750:
            hung.append(session_of(os.getpid(), 1))
            hung[0].suspend()

    result = Trial(TrialTask(spec, run_dir, 5), on_tick=hang).run()
    assert [each.restarts for each in result.sessions] == [1, 1]
    assert [str(each.ending) for each in result.sessions] == ["finished"] * RANKS
    wait_until(lambda: all_gone(hung))
    assert repeatable(run_dir.session(0, 0).rows) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda **changes: reinforce(
            agent__memory={"name": "OnPolicyReplay"}, **changes
        ),
        lambda **changes: soft(
            "SoftActorCritic", **{"env__name": "Pendulum-v1", **changes}
        ),
    ],
    ids=["episodes of unequal length", "three optimizers and replay"],
)
def test_other_algorithms_survive_the_loss_of_a_rank_too(folder, make):
    write_spec(folder, ranks(make))
    assert call(command(folder, "train", "--seed", "2"), folder).code == 0
    expected = repeatable(rows_file(folder))
    shutil.rmtree(run_folder(folder))
    with started(folder, "train", "--seed", "2") as running:
        wait_until(lambda: row_count(folder) > 3)
        wait_until(lambda: running.session(1) or running.process.poll() is not None)
        process = running.session(1)
        if process is not None:
            process.kill()
        done = running.end()
    assert done.code == 0, done.err
    assert repeatable(rows_file(folder)) == expected


def test_a_checkpoint_that_only_some_ranks_declared_valid_is_restored_by_all(
    trained, folder
):
    shutil.copytree(trained / "data", folder / "data", dirs_exist_ok=True)
    run_dir = RunDir(run_folder(folder), NAME)
    paths = [run_dir.session(0, rank) for rank in range(RANKS)]
    newest = manifest(folder, 1)
    content = newest.read_text()
    newest.rename(pending_path(newest))
    assert settle(paths) == []
    assert newest.read_text() == content
