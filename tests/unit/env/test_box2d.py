"""LunarLander, when Box2D is installed."""

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_array_equal

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


def test_a_resume_restores_generators_and_begins_fresh_episodes(build, random_actions):
    env = build("LunarLander-v3", normalize_obs=True)
    env.reset()
    for action in random_actions(env, 20):
        env.step(action)
    state = env.state_dict()
    first, second = (
        build("LunarLander-v3", seed, normalize_obs=True) for seed in (1, 2)
    )
    for restored in (first, second):
        restored.load_state_dict(state)
    assert_array_equal(first.obs, second.obs)
    for action in random_actions(env, 20):
        assert_array_equal(first.step(action).obs, second.step(action).obs)
