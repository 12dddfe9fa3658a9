"""Environments of Brax keep the contract. Brax is not installed with the lab."""

import numpy as np
import pytest

from slm_lab.env.make import make_env
from slm_lab.testing import EnvironmentCase

pytest.importorskip("brax")

CASE = EnvironmentCase({"name": "lab_extras:Brax-v0", "max_t": 30})


def test_no_transition_leads_from_one_episode_into_the_next() -> None:
    env = make_env(CASE.spec(num_envs=4), 0)
    obs = env.reset()
    assert obs.shape == (4, 4)
    truncated = 0
    firsts = []
    for _ in range(65):
        step = env.step(np.zeros((4, 1), np.float32))
        # no angle changes by more in one step
        assert np.abs(step.next_obs[:, 1] - obs[:, 1]).max() < 0.2
        if step.finished is not None:
            rows = step.finished.env_index
            assert np.abs(step.obs[rows]).max() < 0.02
            assert step.finished.episode_length.max() <= 30
            firsts.append(step.obs[rows[0]])
        truncated += int(step.truncated.sum())
        obs = step.obs
    assert truncated > 0
    assert (firsts[0] != firsts[-1]).any()
