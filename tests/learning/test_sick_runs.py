"""`slm-lab doctor` on runs with a known fault, and on a healthy one."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.faults.lab import LAB, call, started_as, wait_until

HEALTHY = ("ppo_cartpole", 60_000, [])
SICK = {
    "learning rate 1e6": (
        "ppo_cartpole",
        20_000,
        ["agent.net.optim_spec.lr=1000000.0"],
        "1 of 1 Sessions failed",
    ),
    "no exploration": (
        "ddqn_per_mountaincar",
        20_000,
        ['agent.algorithm.explore_var_spec={"name": "no_decay", "start_val": 0.0}'],
        "hardly any exploration",
    ),
    "reward × 1e6": (
        "ppo_cartpole",
        20_000,
        ["env.reward_scale=1000000.0"],
        "values are far larger than a net learns well",
    ),
    "gamma 1 and no time limit": (
        "ppo_pendulum",
        100_000,
        ["env.name=Endless-v0", "agent.algorithm.gamma=1.0"],
        "no episode has ended",
    ),
    "wrong bounds of actions": (
        "ppo_pendulum",
        60_000,
        ["env.name=Weak-v0"],
        "no better than random actions",
    ),
    "Pong at 0.1": (
        "a3c_gae_pong",
        20_000,
        ["meta.max_session=2", "agent.net.optim_spec.lr=0.1"],
        "most units of a layer are dead",
    ),
}


def words(name, frames, sets, data):
    every = ["meta.max_session=1", f"env.max_frame={frames}", *sets]
    options = [word for each in every for word in ("-s", each)]
    return [
        str(LAB),
        "run",
        name,
        name,
        "train",
        "--seed",
        "0",
        "--data",
        str(data),
        *options,
    ]


def findings(data, *options):
    done = call(
        [str(LAB), "doctor", "latest", "--data", str(data), "--json", *options], data
    )
    assert done.code == 0
    assert done.err == "" or done.err.endswith("has no checkpoint yet\n")
    return [finding["what"] for finding in json.loads(done.out)]


@pytest.fixture(autouse=True)
def folder_with_the_environments(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


@pytest.mark.slow
@pytest.mark.parametrize("illness", SICK)
def test_a_sick_run_is_diagnosed(illness, tmp_path):
    name, frames, sets, expected = SICK[illness]
    if "pong" in name:
        pytest.importorskip("ale_py", reason="needs the extra atari")
    plug_in = ["--import", "sick_envs"] if "-v0" in str(sets) else []
    done = call([*words(name, frames, sets, tmp_path), *plug_in], tmp_path)
    assert expected in findings(tmp_path, *plug_in)
    is_failure = "failed" in expected
    assert done.code == int(is_failure)
    seen_at_the_end = not is_failure and "dead" not in expected
    assert not seen_at_the_end or "doctor: " in done.out


@pytest.mark.slow
def test_a_healthy_run_has_no_findings(tmp_path):
    done = call(words(*HEALTHY, tmp_path), tmp_path)
    assert (done.code, "doctor" in done.out) == (0, False)
    assert findings(tmp_path) == ["too little for a claim"]


@pytest.mark.slow
def test_a_run_killed_with_all_its_processes_is_recognised(tmp_path):
    with started_as(tmp_path, words("ppo_cartpole", 500_000, [], tmp_path)) as running:
        wait_until(
            lambda: any(
                file.stat().st_size > 1000 for file in tmp_path.glob("*/info/*.csv")
            )
        )
        running.signal_group(signal.SIGKILL)
    assert findings(tmp_path)[0] == "it ended silently: it was killed"
