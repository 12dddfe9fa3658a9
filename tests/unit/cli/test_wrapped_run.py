"""A run whose spec names a wrapper and numbers of infos, from training to
evaluation."""

import numpy as np
import pandas as pd
import pytest

from slm_lab.metrics.reader import read_rows
from tests.faults.lab import NAME, run_folder
from tests.support import ppo
from tests.unit.cli.trained import lab_run, table, trained

pytestmark = pytest.mark.medium

KEYS = ["episode.r", "episode.l"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    env = {
        **ppo()["env"],
        "wrappers": ["gymnasium.wrappers:RecordEpisodeStatistics"],
        "info_keys": KEYS,
    }
    meta = {**ppo()["meta"], "rigorous_eval": 2, "eval_frequency": 300}
    return trained(tmp_path_factory.mktemp("wrapped"), ppo(env=env, meta=meta))


def test_rows_evaluations_and_graphs_have_the_numbers(run):
    root = run_folder(run)
    rows = read_rows(root / "info" / f"{NAME}_t0_s0_session_df_train.csv")
    np.testing.assert_allclose(rows["info_episode.r"], rows["mean_return"], rtol=1e-6)
    assert rows.columns[-2:] == ("info_episode.r", "info_episode.l")
    evaluations = pd.read_csv(root / "info" / f"{NAME}_t0_s0_session_df_eval.csv")
    np.testing.assert_allclose(
        evaluations["info_episode.l"], evaluations["episode_length"]
    )
    for key in KEYS:
        assert (root / f"{NAME}_t0_trial_graph_info_{key}_vs_frames.png").stat().st_size


def test_an_evaluation_needs_the_import_option_and_prints_the_means(run):
    refused = lab_run(run, "eval@latest", "--episodes", "4")
    assert refused.code == 2
    assert "the module gymnasium.wrappers. If you trust it" in refused.err
    done = lab_run(
        run, "eval@latest", "--episodes", "4", "--import", "gymnasium.wrappers"
    )
    assert done.code == 0, done.both
    ((*_, mean, _, _, _, length),) = table(done.both)
    assert f"Session 0: info_episode.r {mean}, info_episode.l {length}\n" in done.both


def test_a_resumed_run_says_that_it_begins_new_episodes(run):
    done = lab_run(run, "train@latest", "-s", "env.max_frame=1200", "--trust")
    assert done.code == 0, done.both
    log = (run_folder(run) / "log" / f"{NAME}_t0_s0.log").read_text()
    assert (
        "the state of CartPole-v1 cannot be saved: resuming with fresh episodes" in log
    )
