"""Workers in virtual time: deterministic, resumed exactly, and as fast as the costs
say."""

import json

import numpy as np
import pytest

from slm_lab.metrics.reader import read_rows
from tests.faults.lab import (
    NAME,
    call,
    command,
    repeatable,
    row_count,
    rows_file,
    run_folder,
    started,
    wait_until,
    write_spec,
)
from tests.support import COSTS, actor_critic, ppo

SIMULATED = {"meta__simulate": {"costs": COSTS}, "meta__max_session": 2}


def train(folder, spec, *options):
    """A run of the spec, which must succeed."""
    write_spec(folder, spec)
    done = call(command(folder, "train", *options), folder)
    assert done.code == 0, done.err
    return done


def all_rows(folder):
    """All that the Sessions have written, times included."""
    files = run_folder(folder).glob("info/*_session_df_train.csv")
    return [file.read_text() for file in sorted(files)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_hogwild_workers_do_the_same_again(folder, mode):
    spec = actor_critic(
        meta__distributed=mode,
        env__max_frame=4000,
        env__normalize_obs=True,
        **SIMULATED,
    )
    train(folder / "first", spec)
    train(folder / "second", spec)
    assert all_rows(folder / "first") == all_rows(folder / "second")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "synced", "all_reduce", "actor_learner"])
def test_a_killed_simulation_goes_on_as_an_uninterrupted_one(folder, mode):
    spec = ppo(
        meta__distributed=mode,
        env__max_frame=30_000,
        env__normalize_obs=True,
        meta__log_frequency=500,
        **SIMULATED,
    )
    train(folder / "whole", spec)
    saving = len([*run_folder(folder / "whole").glob("model/*_latest.json")])
    killed = folder / "killed"
    write_spec(killed, spec)
    with started(killed) as running:
        wait_until(
            lambda: (
                row_count(killed) > 5
                and len([*killed.glob("data/*/model/*_previous.json")]) == saving
            )
        )
        running.process.kill()
        wait_until(lambda: not running.children())
    assert row_count(killed) < row_count(folder / "whole")
    done = call(command(killed, f"train@{run_folder(killed)}"), killed)
    assert done.code == 0, done.err
    log = (run_folder(killed) / "log" / f"{NAME}_t0_s0.log").read_text()
    assert "resuming at frame 0" not in log
    assert all_rows(killed) == all_rows(folder / "whole")


@pytest.mark.slow
def test_ranks_learn_in_virtual_time_as_in_real_time(folder):
    spec = ppo(meta__distributed="all_reduce", env__max_frame=3000, **SIMULATED)
    train(folder / "virtual", spec)
    spec["meta"]["simulate"] = False
    train(folder / "real", spec)
    virtual, real = (
        repeatable(rows_file(folder / kind)) for kind in ("virtual", "real")
    )
    without_waits = [row[:-1] for row in virtual]  # the last column is sync_share
    assert without_waits == [row[:-1] for row in real]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [False, "shared", "synced", "all_reduce"])
def test_the_time_of_a_simulation_follows_from_its_costs(folder, mode):
    """A rollout of 16 steps takes 16 · 4.5 ms at the mean, and a training event 1 ms
    beside its optimizer steps: 17 ms for each minibatch of actor and of critic."""
    costs = {kind: [float(np.mean(values))] for kind, values in COSTS.items()}
    costs |= {"exchange": [0.0], "exchanged_float": [0.0]}
    spec = ppo(
        meta__distributed=mode,
        env__max_frame=6400,
        meta__simulate={"costs": costs},
        meta__max_session=2,
    )
    train(folder, spec)
    rows = read_rows(rows_file(folder))
    horizon = 8 if mode == "all_reduce" else 16  # two ranks share the rollout
    events = rows["frame"][-1] / (horizon * 4)
    steps = rows["opt_step"][-1]
    per_event = horizon * (0.0015 + 0.002 + 0.001) + 0.001
    if mode is False:  # its steps are not told apart
        steps = 0
    expected = events * per_event + 2 * steps * (0.015 + 0.002)
    assert rows["wall_t"][-1] == pytest.approx(expected, rel=0.02)


MEASURED = {
    "synced": {"gradient", "step", "update"},
    "all_reduce": {"gradient", "step", "exchange", "exchanged_float"},
    "actor_learner": {"update", "receive", "publish"},
}


@pytest.mark.slow
def test_every_step_of_the_others_makes_a_copy_of_the_weights_older(folder):
    """Meetings, after which weights are young, must be rare also where a step is
    long."""
    long = {kind: [1.0] for kind in COSTS}
    spec = actor_critic(
        meta__distributed="synced",
        meta__max_session=4,
        meta__simulate={"costs": long},
        env__max_frame=8000,
    )
    train(folder, spec)
    ages = [
        read_rows(rows_file(folder, session))["staleness_mean"].mean()
        for session in range(4)
    ]
    assert np.mean(ages) == pytest.approx(3, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MEASURED)
def test_costs_are_measured_when_a_run_begins_and_are_kept(folder, mode):
    spec = actor_critic(
        meta__distributed=mode,
        env__max_frame=2000,
        meta__simulate=True,
        meta__max_session=2,
    )
    train(folder, spec)
    (file,) = run_folder(folder).glob(f"{NAME}_spec.json")
    costs = json.loads(file.read_text())[NAME]["meta"]["simulate"]["costs"]
    costs = {kind: seconds for kind, seconds in costs.items() if seconds}
    assert {"acting", "environment", "memory"} | MEASURED[mode] <= {*costs}
    for kind in {"gradient", "step"} & MEASURED[mode]:
        assert {*costs[kind]} == {"actor", "critic"}
        costs[kind] = costs[kind]["critic"]
    for seconds in costs.values():
        assert 0 <= np.mean(seconds) < 1
