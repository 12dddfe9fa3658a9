"""Hogwild! workers that reach stop_return, run in dev mode, get NaN, or are
evaluated."""

import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    LAB,
    NAME,
    all_gone,
    call,
    command,
    manifest,
    row_count,
    rows_file,
    run,
    run_folder,
    run_here,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import actor_critic, soft

TWO = {"meta__distributed": "synced", "meta__max_session": 2}

NAN = """
import multiprocessing, pathlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Broken(CartPoleEnv):
    count = 0

    def step(self, action):
        obs, *rest = super().step(action)
        self.count += 1
        victim = multiprocessing.current_process().name == "session-1"
        if victim and self.count == 50 and not pathlib.Path("broken").exists():
            pathlib.Path("broken").touch()
            obs[:] = float("nan")
        return obs, *rest

gymnasium.register("Broken-v0", entry_point=Broken)
"""


@pytest.mark.slow
def test_the_return_that_one_worker_reaches_ends_the_training_of_all(folder):
    write_spec(
        folder, actor_critic(**TWO, env__max_frame=100_000_000, meta__stop_return=5.0)
    )
    run_here(folder, "train")
    saved = [read_manifest(manifest(folder, s)) for s in range(2)]
    assert all(each.finished for each in saved)
    assert sum(each.frame for each in saved) < 1_000_000
    reached = [read_rows(rows_file(folder, s))["final_return"] for s in range(2)]
    assert max(each[-1] for each in reached if len(each)) >= 5.0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_nan_in_one_worker_reaches_no_other_and_the_worker_is_replaced(folder, mode):
    (folder / "broken_env.py").write_text(NAN)
    spec = {
        **TWO,
        "meta__distributed": mode,
        "env__max_frame": 60_000,
        "env__name": "Broken-v0",
    }
    write_spec(folder, actor_critic(**spec))
    run(folder, "train", "--import", "broken_env")
    assert [session["restarts"] for session in trial_metrics(folder)["sessions"]] == [
        0,
        1,
    ]
    log = (run_folder(folder) / "log" / f"{NAME}_t0_s1.log").read_text()
    assert "not finite" in log
    for session in range(2):
        assert read_rows(rows_file(folder, session)).has_values("loss")


@pytest.mark.slow
def test_workers_with_prioritised_replay_are_killed_resumed_evaluated(folder):
    memory = {
        "name": "PrioritizedReplay",
        "batch_size": 16,
        "max_size": 2_000,
        "alpha": 0.6,
    }
    spec = {
        **TWO,
        "agent__memory": memory,
        "meta__save_interval": 0,
        "env__num_envs": 2,
    }
    spec |= {"env__vectorization_mode": "async", "env__max_frame": 1_000_000}
    write_spec(folder, soft("SoftActorCritic", **spec))
    with started(folder) as running:
        wait_until(lambda: all(row_count(folder, s) for s in (0, 1)))
        wait_until(lambda: all(manifest(folder, s).exists() for s in (0, 1)))
        children = running.children()
        running.process.kill()
        running.process.wait()
        wait_until(lambda: all_gone(children), timeout=5)
    last = sum(read_manifest(manifest(folder, s)).frame for s in (0, 1)) + 3_000
    done = call(command(folder, "train@latest", "-s", f"env.max_frame={last}"), folder)
    assert (done.code, done.err) == (0, "")
    spec_file = str(folder / "spec.json")
    data = str(folder / "data")
    evaluate = [str(LAB), "run", spec_file, NAME, "eval@latest", "--data", data]
    evaluated = call([*evaluate, "--episodes", "2", "--session", "1"], folder)
    assert (evaluated.code, evaluated.err) == (0, "")
