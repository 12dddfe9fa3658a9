"""What every environment promises of a step, against plain environments stepped by
hand."""

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal, assert_equal

from slm_lab.env.vector.raw import env_seeds

IDS = [
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
]
WAYS = [(name, mode) for name in IDS for mode in ("sync", None)] + [
    ("CartPole-v1", "async")
]


@pytest.mark.medium
@pytest.mark.parametrize(("name", "mode"), WAYS)
def test_arrays_have_the_types_and_shapes_that_the_spaces_say(
    build, random_actions, name, mode
):
    env = build(name, vectorization_mode=mode, max_t=11)
    obs = env.reset()
    shape = (env.num_envs, *env.observation_space.shape)
    for action in random_actions(env, 25):
        assert obs.shape == shape
        assert obs.dtype == np.float32 == env.observation_space.dtype
        step = env.step(action)
        obs = step.obs
        assert step.next_obs.shape == shape
        assert step.reward.dtype == np.float32
        assert step.terminated.dtype == step.truncated.dtype == np.bool_
        assert all(len(array) == env.num_envs for array in step[:5])
        assert all(np.isfinite(array).all() for array in step[:3])
        assert env.obs is obs


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", None, "async"])
def test_returned_arrays_are_never_written_again(build, random_actions, mode):
    env = build("CartPole-v1", vectorization_mode=mode)
    kept = [env.reset()]
    copies = [kept[0].copy()]
    for action in random_actions(env, 60):
        for array in env.step(action)[:5]:
            kept.append(array)
            copies.append(array.copy())
    assert_equal(kept, copies)


@pytest.mark.medium
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(IDS),
    seed=st.integers(0, 2**31 - 1),
    max_t=st.sampled_from([None, 1, 2, 9, 30]),
    keys=st.fixed_dictionaries(
        {},
        optional={
            "clip_reward": st.sampled_from(["sign", 0.5]),
            "reward_scale": st.sampled_from(["sign", 0.1, 3.0]),
            "normalize_reward": st.booleans(),
            "normalize_obs": st.booleans(),
        },
    ),
)
def test_sync_environments_equal_plain_ones_stepped_by_hand(
    build, random_actions, name, seed, max_t, keys
):
    env = build(name, seed, vectorization_mode="sync", max_t=max_t, **keys)
    plain = [gymnasium.make(name, max_episode_steps=max_t) for _ in range(env.num_envs)]
    obs = [p.reset(seed=s)[0] for p, s in zip(plain, env_seeds(seed, 3), strict=True)]
    seen = env.reset()
    sees_raw = not keys.get("normalize_obs", False)
    if sees_raw:
        assert_array_equal(seen, np.stack(obs))
    returns = np.zeros(3)
    lengths = np.zeros(3, np.int64)
    for action in random_actions(env, 60, seed):
        step = env.step(action)
        for i, single in enumerate(plain):
            box = isinstance(single.action_space, gymnasium.spaces.Box)
            raw = (
                np.clip(action[i], -1, 1) * single.action_space.high
                if box
                else action[i]
            )
            last, reward, terminated, truncated, _ = single.step(raw)
            returns[i] += reward
            lengths[i] += 1
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            if sees_raw:
                assert_array_equal(step.next_obs[i], last)
            if not keys:
                assert step.reward[i] == np.float32(reward)
            if terminated or truncated:
                assert step.finished is not None
                at = step.finished.env_index.tolist().index(i)
                assert step.finished.episode_return[at] == returns[i]
                assert step.finished.episode_length[at] == lengths[i]
                returns[i] = lengths[i] = 0
                last, _ = single.reset()
            if sees_raw:
                assert_array_equal(step.obs[i], last)


def test_an_episode_can_be_terminated_and_truncated_in_the_same_step(build):
    def fall(env):
        env.reset()
        steps = 0
        while True:
            step = env.step(np.ones(1, np.int64))
            steps += 1
            if step.terminated[0]:
                return steps, step

    length, _ = fall(build("CartPole-v1", num_envs=1))
    again, step = fall(build("CartPole-v1", num_envs=1, max_t=length))
    assert again == length
    assert step.truncated[0]


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", "async", None])
def test_a_new_reset_begins_new_episodes_with_other_first_states(
    build, random_actions, mode
):
    env = build("CartPole-v1", vectorization_mode=mode)
    first = env.reset()
    for action in random_actions(env, 5):
        env.step(action)
    assert (env.reset() != first).any(axis=1).all()
    lengths = []
    for step_count, action in enumerate(random_actions(env, 200), start=1):
        finished = env.step(action).finished
        if finished is not None:
            lengths.append((step_count, finished.episode_length.max()))
    assert all(length <= step_count for step_count, length in lengths)
