"""Environments of gymnax keep the contract. JAX is not installed with the lab."""

import numpy as np
import pytest

from slm_lab.env.make import make_env
from slm_lab.testing import EnvironmentCase, EnvironmentContract

pytest.importorskip("gymnax")

NAME = "lab_extras:Gymnax-v0"


class TestGymnax(EnvironmentContract):
    cases = {
        "choices": EnvironmentCase({"name": NAME}),
        "boxes": EnvironmentCase({"name": NAME, "task": "Pendulum-v1"}, steps=210),
    }


def test_no_transition_leads_from_one_episode_into_the_next() -> None:
    spec = TestGymnax.cases["choices"].spec(num_envs=64)
    env = make_env(spec, 0)
    obs = env.reset()
    ended = 0
    for _ in range(60):
        step = env.step(np.ones(64, np.int64))
        # by one push a cart changes its speed by less than 0.3
        assert np.abs(step.next_obs[:, 1] - obs[:, 1]).max() < 0.3
        if step.finished is not None:
            rows = step.finished.env_index
            assert np.abs(step.obs[rows]).max() <= 0.05
            ended += len(rows)
        obs = step.obs
    assert ended > 200
