"""Observations that are too small to be normalised."""

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from slm_lab.doctor.measured import tiny_observations
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec


class Tiny(CartPoleEnv):
    """Observes `size` times what CartPole does, and adds `shift`."""

    size, shift = 1.0, 0.0

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return self.seen(obs), info

    def step(self, action):
        obs, *rest = super().step(action)
        return self.seen(obs), *rest

    def seen(self, obs):
        return (obs * self.size + self.shift).astype(np.float32)


def found(registered, size, shift=0.0, normalize_obs=True):
    name = registered("Tiny-v0", type("Tiny", (Tiny,), {"size": size, "shift": shift}))
    spec = EnvSpec(name=name, max_frame=1000, num_envs=4, normalize_obs=normalize_obs)
    env = make_env(spec, seed=0)
    env.reset()
    for _ in range(100):
        env.step(np.random.default_rng(0).integers(0, 2, 4))
    adapter = PolicyAdapter(spec)
    adapter.statistics[:] = env.statistics
    return list(tiny_observations(adapter))


def test_observations_of_a_millionth_are_found(registered):
    (finding,) = found(registered, 1e-6)
    assert finding.what == "observations are too small to be normalised"
    assert finding.evidence.startswith("4 of 4 components vary by at most ")
    assert "env.normalize_obs divides by at least 0.000100" in finding.advice


@pytest.mark.parametrize(
    ("size", "shift", "normalize_obs"),
    [(1.0, 0.0, True), (0.01, 0.0, True), (1e-6, 0.0, False)],
)
def test_usual_observations_are_no_finding(registered, size, shift, normalize_obs):
    assert found(registered, size, shift, normalize_obs) == []


def test_constants_that_only_rounding_varies_are_no_finding(registered):
    assert found(registered, 1e-6, shift=10.0) == []
