import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.core.schedule import Schedule
from slm_lab.env.convert.normalize import ObservationNormalizer, RunningStatistics
from slm_lab.env.convert.reward import RewardConverter

PAIR = ObservationLayout((2,), FLOAT32)


def statistics(size):
    return RunningStatistics(np.zeros(RunningStatistics.length(size)), size)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, 1e6, -3e4]),
    seed=st.integers(0, 1000),
)
def test_batches_add_up_to_the_mean_and_variance_of_everything(sizes, offset, seed):
    rows = np.random.default_rng(seed).normal(offset, 2.0, (sum(sizes), 3))
    running = statistics(3)
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        running.update(batch)
    assert running._count == len(rows)
    assert_allclose(running.mean, rows.mean(0), rtol=1e-12, atol=1e-12)
    assert_allclose(running.variance, rows.var(0), rtol=1e-7, atol=1e-7)


def test_statistics_live_in_the_vector_of_their_owner():
    vector = np.zeros(RunningStatistics.length(2))
    running = RunningStatistics(vector, 2)
    running.update(np.array([[1.0, 2.0], [3.0, 6.0]]))
    assert_array_equal(vector, [2, 2, 4, 2, 8])
    vector[:] = [4, 0, 0, 4, 16]
    assert_array_equal(running.variance, [1, 4])


def test_nothing_seen_means_nothing_changed():
    normalizer = ObservationNormalizer(statistics(2), clip=None, layout=PAIR)
    obs = np.array([[0.5, -3.0]], np.float32)
    assert_allclose(normalizer.normalize(obs), obs, rtol=1e-6)


def test_normalised_observations_have_mean_zero_and_deviation_one_and_are_clipped():
    rng = np.random.default_rng(0)
    normalizer = ObservationNormalizer(statistics(2), clip=2.0, layout=PAIR)
    obs = rng.normal([5.0, -100.0], [0.1, 30.0], (4000, 2)).astype(np.float32)
    normalizer.update(obs)
    seen = normalizer.normalize(obs)
    assert seen.dtype == np.float32
    assert np.abs(seen).max() == 2.0
    assert_allclose(seen.mean(0), 0, atol=0.02)
    assert_allclose(seen.std(0), 1, atol=0.06)


def test_a_reward_is_divided_by_the_deviation_of_the_discounted_return():
    gamma = 0.9
    returns = []
    rewards = RewardConverter(None, 1e9, True, gamma=gamma, statistics=statistics(1))
    value = 0.0
    for t, reward in enumerate([1.0, 2.0, -1.0, 4.0, 0.5], start=1):
        value = gamma * value + reward
        returns.append(value)
        seen, _ = rewards.convert(np.array([reward]))
        assert_allclose(seen, reward / np.sqrt(np.var(returns) + 1e-8), rtol=1e-6)
        if t == 3:  # the third reward ends the episode: counted above, forgotten here
            rewards.end_episodes(np.array([0]))
            value = 0.0


def test_a_discount_with_a_schedule_discounts_by_its_value_of_now():
    falling = Schedule(1.0, 0.0, end_step=4, shape="linear_decay")
    rewards = RewardConverter(None, 1e9, True, gamma=falling, statistics=statistics(1))
    returns = []
    value = 0.0
    for frame, gamma in enumerate([1.0, 0.75, 0.5, 0.25, 0.0]):
        rewards.set_frame(frame)
        value = gamma * value + 2.0
        returns.append(value)
        seen, _ = rewards.convert(np.array([2.0]))
        assert_allclose(seen, 2.0 / np.sqrt(np.var(returns) + 1e-8), rtol=1e-6)


@pytest.mark.parametrize("mode", ["sync", None])
def test_every_observation_acted_on_is_counted_once_and_final_ones_are_not(
    build, random_actions, mode
):
    raw = build("CartPole-v1", vectorization_mode=mode)
    seen = build(
        "CartPole-v1", vectorization_mode=mode, normalize_obs=True, clip_obs=None
    )
    acted_on = [raw.reset()]
    seen.reset()
    for action in random_actions(raw, 80):
        raw_step = raw.step(action)
        step = seen.step(action)
        acted_on.append(raw_step.obs)
        rows = np.concatenate(acted_on).astype(np.float64)
        mean = rows.mean(0)
        deviation = np.sqrt(rows.var(0) + 1e-8)
        assert_allclose(step.obs, (raw_step.obs - mean) / deviation, rtol=1e-4)
        assert_allclose(
            step.next_obs, (raw_step.next_obs - mean) / deviation, rtol=1e-4
        )
        assert (raw_step.next_obs is raw_step.obs) == (step.next_obs is step.obs)
    assert seen.statistics[0] == 81 * 3


def test_frozen_statistics_do_not_move_and_can_be_handed_over(build, random_actions):
    keys = {"normalize_obs": True, "normalize_reward": True}
    training = build("Pendulum-v1", **keys)
    training.reset()
    for action in random_actions(training, 30):
        training.step(action)
    evaluation = build("Pendulum-v1", training=False, **keys)
    evaluation.statistics[:] = training.statistics
    first = evaluation.reset()
    unchanged = build("Pendulum-v1").reset()
    mean = training.statistics[1:4]
    m2 = training.statistics[4:7]
    expected = (unchanged - mean) / np.sqrt(m2 / training.statistics[0] + 1e-8)
    assert_allclose(first, np.clip(expected, -10, 10), rtol=1e-5)
    for action in random_actions(evaluation, 30):
        evaluation.step(action)
    assert_array_equal(evaluation.statistics, training.statistics)


def test_environments_without_normalisers_have_no_statistics(build):
    assert build("CartPole-v1").statistics.shape == (0,)
    assert build("CartPole-v1", normalize_obs=True).statistics.shape == (9,)
    assert build("CartPole-v1", normalize_reward=True).statistics.shape == (3,)
