"""Trainings on MuJoCo: stopped and resumed they are the uninterrupted ones."""

import pytest
import torch
from pandas.testing import assert_frame_equal

from tests.contract.runs import vectors
from tests.support import parse, ppo, rows, run_session, soft

pytest.importorskip("mujoco")

KEYS = {"env__num_envs": 2, "env__max_t": 60, "env__max_frame": 600, "env__normalize_obs": True}
SPECS = {
    "PPO on Hopper": ppo(env__name="Hopper-v5", **KEYS),
    "PPO on Hopper in workers": ppo(env__name="Hopper-v5", env__vectorization_mode="async", **KEYS),
    "SAC on Humanoid": soft("SoftActorCritic", env__name="Humanoid-v5", **KEYS),
}


def stop(session):
    if session.clock.frame >= 300:
        session.board.request_stop()


@pytest.mark.parametrize("name", SPECS)
def test_a_resumed_run_equals_the_uninterrupted_one(name, tmp_path, caplog):
    spec = parse(SPECS[name])
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop)
    assert stopped.env.exact_state
    assert stopped.clock.frame == 300
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
    assert rows(whole)["total_reward"].notna().any()
    for part, vector in vectors(whole).items():
        assert torch.equal(vectors(resumed)[part], vector)
    assert "fresh episodes" not in caplog.text
