"""Ctrl-C on runs that learn from replay: resumed, they equal uninterrupted ones."""

import pytest

from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    call,
    command,
    interrupt,
    manifest,
    repeatable,
    row_count,
    rows_file,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import q_learning, soft

BETA = {"name": "linear_decay", "start_val": 0.4, "end_val": 1.0, "end_step": 6_000}
SPECS = {
    "double_dqn_prioritized": q_learning(
        "DoubleDQN",
        agent__memory={
            "name": "PrioritizedReplay",
            "batch_size": 16,
            "max_size": 3000,
            "beta": BETA,
            "use_cer": True,
        },
        env__max_frame=12_000,
        meta__log_frequency=300,
    ),
    "sac_pendulum": soft(
        "SoftActorCritic",
        agent__memory={
            "name": "Replay",
            "batch_size": 16,
            "max_size": 3000,
            "use_cer": True,
        },
        env__name="Pendulum-v1",
        env__max_frame=6_000,
        meta__log_frequency=150,
    ),
    "sac_cartpole": soft(
        "SoftActorCritic", env__max_frame=6_000, meta__log_frequency=150
    ),
}
"""Some seconds of training each, and memories that are written over several times."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_a_run_stopped_midway_and_resumed_has_the_rows_of_an_uninterrupted_run(
    name, folder, tmp_path_factory
):
    spec, whole = SPECS[name], tmp_path_factory.mktemp("uninterrupted")
    write_spec(whole, spec)
    assert call(command(whole, "train"), whole).code == 0
    wanted = repeatable(rows_file(whole))
    assert len(wanted) == 1 + 40
    write_spec(folder, spec)
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 10)
        interrupt(running)
        done = running.end()
    assert (done.code, done.err) == (130, "")
    saved = read_manifest(manifest(folder))
    assert not saved.finished
    assert trial_metrics(folder)["sessions"][0]["ending"] == "interrupted"
    stopped = row_count(folder)
    assert 10 < stopped < 40
    assert repeatable(rows_file(folder)) == wanted[: 1 + stopped]
    resumed = call(command(folder, "train@latest"), folder)
    assert (resumed.code, resumed.err) == (0, "")
    assert read_manifest(manifest(folder)).finished
    assert repeatable(rows_file(folder)) == wanted
