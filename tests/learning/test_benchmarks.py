"""The shipped specs reach what is promised of them, under every one of their four seeds."""

from datetime import datetime

import pytest

from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.trial import Trial
from slm_lab.metrics.reader import read_rows
from slm_lab.spec.load import load_spec

BENCHMARKS = {
    "demo.json": ("ppo_cartpole", 475.0),
    "benchmark/ppo/ppo_cartpole.json": ("ppo_cartpole", 475.0),
    "benchmark/a2c/a2c_gae_cartpole.json": ("a2c_gae_cartpole", 450.0),
    "benchmark/a2c/a2c_gae_acrobot.json": ("a2c_gae_acrobot", -92.0),
    "benchmark/reinforce/reinforce_cartpole.json": ("reinforce_cartpole", 400.0),
    "benchmark/ppo/ppo_acrobot.json": ("ppo_acrobot", -88.0),
    "benchmark/ppo/ppo_pendulum.json": ("ppo_pendulum", -180.0),
    "benchmark/ppo/ppo_mountaincar.json": ("ppo_mountaincar", -125.0),
    "benchmark/ppo/ppo_mountaincar_continuous.json": ("ppo_mountaincar_continuous", 90.0),
    "benchmark/ppo/ppo_lunar.json": ("ppo_lunar", 220.0),
    "benchmark/ppo/ppo_lunar_continuous.json": ("ppo_lunar_continuous", 235.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", BENCHMARKS)
def test_every_seed_reaches_the_threshold(file, tmp_path):
    name, threshold = BENCHMARKS[file]
    spec = load_spec(file, name)
    run_dir = RunDir.create(tmp_path, name, datetime(2026, 1, 1))
    result = Trial(spec, run_dir, root_seed=0).run()
    assert not result.failed
    finals = [
        read_rows(run_dir.session(0, s).rows)["total_reward_ma"][-1]
        for s in range(spec.meta.max_session)
    ]
    assert min(finals) >= threshold, finals
