"""LunarLander, when Box2D is installed."""

import importlib.util

import numpy as np
import pytest

from slm_lab.env.check import check_env

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("Box2D") is None, reason="the box2d extra is not installed"
)


@pytest.mark.parametrize("continuous", [False, True])
def test_lunar_lander_runs_without_a_warning(build, random_actions, continuous):
    env = build("LunarLander-v3", kwargs={"continuous": continuous}, max_t=100)
    env.reset()
    assert not env.exact_state
    for action in random_actions(env, 120):
        step = env.step(action)
        assert np.isfinite(step.next_obs).all()


def test_keys_of_lunar_lander_are_checked_by_its_signature(env_spec):
    assert check_env(env_spec("LunarLander-v3", kwargs={"continuous": True})) == []
    (problem,) = check_env(env_spec("LunarLander-v3", kwargs={"continous": True}))
    assert problem.path == "env.continous"
    assert "did you mean continuous?" in problem.message
