"""Our native CartPole against Gymnasium's single environment."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from slm_lab.env.vector.cartpole import CartPoleEnvs, OneCartPole


def cart_poles(num_envs, *arguments):
    if num_envs == 1:
        return OneCartPole(*arguments)
    return CartPoleEnvs(num_envs, *arguments)


def follow(envs, references, index):
    """Puts reference `index` where the native environment is."""
    references[index].reset()
    references[index].unwrapped.state = envs.state_dict()["state"][
        [0, 2, 1, 3], index
    ].copy()


@pytest.mark.medium
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**31),
    limit=st.sampled_from([7, 30, 500]),
    sutton_barto=st.booleans(),
    num_envs=st.sampled_from([1, 5]),
)
def test_every_episode_equals_the_single_environment_bit_for_bit(
    seed, limit, sutton_barto, num_envs
):
    envs = cart_poles(num_envs, seed, limit, sutton_barto)
    references = [
        gymnasium.make(
            "CartPole-v1", max_episode_steps=limit, sutton_barto_reward=sutton_barto
        )
        for _ in range(num_envs)
    ]
    obs = envs.reset()
    for index in range(num_envs):
        follow(envs, references, index)
    for action in np.random.default_rng(seed).integers(0, 2, (120, num_envs)):
        step = envs.step(action)
        expected = [ref.step(a) for ref, a in zip(references, action, strict=True)]
        ended = [row[2] or row[3] for row in expected]
        assert_array_equal(step.reward, [row[1] for row in expected])
        assert_array_equal(step.terminated, [row[2] for row in expected])
        assert_array_equal(step.truncated, [row[3] for row in expected])
        assert (step.done_index is None) == (not any(ended))
        finals = iter([] if step.final_obs is None else step.final_obs)
        for index in range(num_envs):
            obs = next(finals) if ended[index] else step.obs[index]
            assert_array_equal(obs, expected[index][0], strict=True)
            if ended[index]:
                assert np.abs(step.obs[index]).max() <= 0.05
                follow(envs, references, index)


@pytest.mark.parametrize("one", [lambda: CartPoleEnvs(1, 0), lambda: OneCartPole(0)])
@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 16, 33, 128])
def test_any_number_of_environments_steps_alike(num_envs, one):
    wide = CartPoleEnvs(num_envs, 3)
    wide.reset()
    wide_state = wide.state_dict()
    for index in range(num_envs):
        narrow = one()
        narrow.load_state_dict(
            {
                "rng": wide_state["rng"],
                "state": wide_state["state"][:, [index]],
                "elapsed": np.zeros(1, np.int64),
            }
        )
        wide.load_state_dict(wide_state)
        for action in (1, 0, 0, 1, 1, 1):
            wide_obs = wide.step(np.full(num_envs, action)).obs[index]
            assert_array_equal(narrow.step(np.array([action])).obs[0], wide_obs)


def test_alone_it_draws_the_same_first_states_and_steps_alike_for_long():
    few = CartPoleEnvs(1, 5, 200)
    one = OneCartPole(5, 200)
    assert_array_equal(one.reset(), few.reset(), strict=True)
    for action in np.random.default_rng(0).integers(0, 2, (3000, 1)):
        for ours, expected in zip(one.step(action), few.step(action), strict=True):
            assert_array_equal(ours, expected, strict=expected is not None)
    assert_equal(one.state_dict(), few.state_dict())


def test_first_states_follow_the_distribution_of_gymnasium():
    states = CartPoleEnvs(5000, 0).reset()
    assert np.abs(states).max() <= 0.05
    assert abs(states.mean()) < 1e-3
    assert_allclose(states.std(axis=0), 0.1 / np.sqrt(12), rtol=0.05)


def test_without_a_limit_only_falling_ends_an_episode():
    envs = CartPoleEnvs(4, 0, max_episode_steps=None)
    envs.reset()
    for action in np.random.default_rng(0).integers(0, 2, (300, 4)):
        assert not envs.step(action).truncated.any()


@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_action_that_does_not_exist_is_refused(num_envs):
    envs = cart_poles(num_envs, 0)
    envs.reset()
    with pytest.raises(IndexError):
        envs.step(np.full(num_envs, 2))
