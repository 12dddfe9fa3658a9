"""Resume: what an environment does besides its contract."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal

from slm_lab.core.errors import CheckpointError
from slm_lab.env.state import has_exact_state


def run(env, actions):
    rows = []
    for action in actions:
        step = env.step(action)
        rows += [*step[:5], *(step.finished or ())]
    return rows


class Counter(gymnasium.Env):
    """Has a state that no adapter knows."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return self.np_random.random(1, np.float32), 1.0, self.count == 5, False, {}


@pytest.fixture
def counter(registered):
    return registered("Counter-v0", Counter)


def test_without_an_adapter_fresh_episodes_begin_and_the_rest_is_restored(
    build, random_actions, counter
):
    env = build(counter, normalize_obs=True)
    env.reset()
    run(env, random_actions(env, 3))
    state = env.state_dict()
    restored = build(counter, 9, normalize_obs=True)
    twin = build(counter, 8, normalize_obs=True)
    for other in (restored, twin):
        other.load_state_dict(state)
        assert not other.exact_state
    # the first observations count
    assert restored.statistics[0] == env.statistics[0] + 3
    assert_array_equal(restored.obs, twin.obs)
    steps = [restored.step(action) for action in random_actions(env, 5)]
    assert [step.finished is not None for step in steps] == [False] * 4 + [True]
    assert_array_equal(steps[-1].finished.episode_return, [5, 5, 5])


def test_a_wrapper_without_an_adapter_is_not_restored_by_halves():
    env = gymnasium.make("CartPole-v1")
    assert has_exact_state(env)
    assert not has_exact_state(gymnasium.wrappers.FrameStackObservation(env, 2))
    env.close()


@pytest.fixture
def checked(registered):
    """An environment that is made with the wrappers of `gymnasium.make` inside."""
    return registered("Checked-v0", lambda: gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("steps_before", [0, 1, 20])
def test_wrappers_of_gymnasium_continue_with_the_environment(
    build, random_actions, checked, steps_before
):
    env = build(checked, 1)
    restored = build(checked, 2)
    env.reset()
    run(env, random_actions(env, steps_before))
    restored.load_state_dict(env.state_dict())
    assert env.exact_state
    actions = random_actions(env, 50, seed=1)
    assert_equal(run(env, actions), run(restored, actions))


@pytest.mark.parametrize("other", [{"num_envs": 4}, {"normalize_obs": True}])
def test_a_state_of_other_environments_is_refused(build, other):
    env = build("CartPole-v1")
    env.reset()
    with pytest.raises(CheckpointError, match="saved"):
        build("CartPole-v1", **other).load_state_dict(env.state_dict())
