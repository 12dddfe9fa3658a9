"""Bounds of actions that are far wider than what an environment honours."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.spaces import Box

from slm_lab.doctor.measured import wide_bounds
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.spec.schema.env import EnvSpec


class Wide(PendulumEnv):
    """A pendulum that clips torques at ±2, with other bounds."""

    high = 1000.0

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = Box(-self.high, self.high, (1,), np.float32)


class Unbounded(Wide):
    high = np.inf


class Twice(Wide):
    high = 4.0


class Deaf(gymnasium.Env):
    """Actions change nothing."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def found(name):
    return list(wide_bounds(PolicyAdapter(EnvSpec(name=name, max_frame=1000))))


def test_bounds_far_beyond_what_the_environment_honours_are_found(registered):
    (finding,) = found(registered("Wide-v0", Wide))
    assert finding.evidence == "an action of 1,000 does the same as 3.91"
    assert "narrow the bounds" in finding.advice


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1"]
)
def test_usual_environments_have_no_findings(name):
    assert found(name) == []


@pytest.mark.parametrize("kind", [Twice, Unbounded, Deaf])
def test_an_unclear_case_is_no_finding(kind, registered):
    assert found(registered(f"{kind.__name__}-v0", kind)) == []
