"""One training of workers run several times over: `meta.max_run`."""

import numpy as np
import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    NAME,
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
from tests.support import actor_critic

TOGETHER = {"meta__distributed": "synced", "meta__max_session": 2, "meta__max_run": 2}
BUDGET = 8_000


def frames_of(folder, run):
    return sum(read_manifest(manifest(folder, s)).frame for s in (2 * run, 2 * run + 1))


@pytest.mark.slow
def test_each_run_has_the_whole_budget_its_own_seeds_and_its_own_weights(folder):
    write_spec(
        folder, actor_critic(**TOGETHER, env__max_frame=BUDGET, meta__log_frequency=500)
    )
    run_here(folder, "train")
    for run in range(2):
        assert BUDGET <= frames_of(folder, run) <= BUDGET + 4 * 2
    rows = [read_rows(rows_file(folder, s)) for s in range(4)]
    whole = [
        np.concatenate([each["total_reward"] for each in rows[i : i + 2]])
        for i in (0, 2)
    ]
    assert not np.array_equal(*whole)
    totals = np.concatenate([each["total_frame"] for each in rows])
    assert totals.max() <= BUDGET + 4 * 2, "the clock of a run counts its own workers"
    metrics = trial_metrics(folder)
    assert (metrics["max_session"], metrics["max_run"], metrics["num_sessions"]) == (
        2,
        2,
        4,
    )
    assert metrics["throughput"]["staleness_p50"] >= 0
    graph = f"{NAME}_t0_trial_graph_mean_returns_vs_frames.html"
    assert "4 Sessions, workers of 2 runs" in (run_folder(folder) / graph).read_text()


@pytest.mark.slow
def test_a_stop_in_the_second_run_keeps_the_first_and_resuming_ends_the_second(folder):
    write_spec(
        folder, actor_critic(**TOGETHER, env__max_frame=16_000, meta__log_frequency=500)
    )
    with started(folder) as running:
        wait_until(lambda: row_count(folder, 2) or row_count(folder, 3))
        interrupt(running)
        done = running.end()
    assert done.code == 130
    first = [rows_file(folder, s).read_text() for s in (0, 1)]
    endings = [session["ending"] for session in trial_metrics(folder)["sessions"]]
    assert endings == ["finished", "finished", "interrupted", "interrupted"]
    stopped_at = frames_of(folder, 1)
    assert stopped_at < 16_000 <= frames_of(folder, 0)

    run_here(folder, "train@latest")
    assert [rows_file(folder, s).read_text() for s in (0, 1)] == first
    assert frames_of(folder, 1) >= 16_000
