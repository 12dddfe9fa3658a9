"""Trainings on MuJoCo: stopped and resumed they are the uninterrupted ones."""

import pytest

from tests.contract.runs import assert_same_run, stop_at
from tests.support import parse, ppo, rows, run_session, soft

pytest.importorskip("mujoco")

KEYS = {"env__num_envs": 2, "env__max_t": 60, "env__max_frame": 600, "env__normalize_obs": True}
SPECS = {
    "PPO on Hopper": ppo(env__name="Hopper-v5", **KEYS),
    "PPO on Hopper in workers": ppo(env__name="Hopper-v5", env__vectorization_mode="async", **KEYS),
    "SAC on Humanoid": soft("SoftActorCritic", env__name="Humanoid-v5", **KEYS),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_resumed_run_equals_the_uninterrupted_one(name, tmp_path, caplog):
    spec = parse(SPECS[name])
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop_at(300))
    assert stopped.env.exact_state
    assert stopped.clock.frame == 300
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_same_run(resumed, whole)
    assert rows(whole)["total_reward"].notna().any()
    assert "fresh episodes" not in caplog.text
