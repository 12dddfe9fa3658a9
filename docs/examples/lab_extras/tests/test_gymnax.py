"""Environments of gymnax keep the contract. JAX is not installed with the lab."""

import numpy as np
import pytest
import torch

from slm_lab.env.device_env import make_device_env
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


def test_arrays_of_jax_become_tensors_without_the_host() -> None:
    spec = TestGymnax.cases["choices"].spec(num_envs=8)
    host = make_env(spec, 0)
    device = make_device_env(spec, 0, "cpu")
    assert device is not None
    assert np.array_equal(device.reset(), host.reset())
    for _ in range(60):
        action = np.ones(8, np.int64)
        expected = host.step(action)
        step = device.step(torch.from_numpy(action))
        for ours, theirs in zip(step[:5], expected[:5], strict=True):
            assert np.array_equal(ours, theirs)
