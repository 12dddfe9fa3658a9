import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from slm_lab.charts.statistics import (
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
    seeds_for_width,
)

returns = st.floats(-1e3, 1e3, width=32)
seeds = npst.arrays(np.float64, st.integers(1, 12), elements=returns)


def drawn(seed=0):
    return np.random.default_rng(seed)


def mean(values):
    return values.mean(axis=0)


@given(seeds)
def test_the_interquartile_mean_is_that_of_what_is_left_without_a_quarter_at_each_end(
    values,
):
    cut = len(values) // 4
    left = sorted(values)[cut : len(values) - cut]
    assert interquartile_mean(values) == pytest.approx(sum(left) / len(left), abs=1e-9)


@given(npst.arrays(np.float64, st.integers(1, 3), elements=returns))
def test_of_fewer_than_four_seeds_the_interquartile_mean_is_the_mean(values):
    assert interquartile_mean(values) == pytest.approx(values.mean(), abs=1e-9)


@given(
    npst.arrays(np.float64, st.integers(4, 12), elements=returns), st.floats(1e3, 1e9)
)
def test_one_seed_that_goes_astray_does_not_move_the_interquartile_mean(
    values, outlier
):
    astray = np.where(np.arange(len(values)) == values.argmax(), outlier, values)
    assert interquartile_mean(astray) == interquartile_mean(values)


def test_the_interquartile_mean_of_curves_is_that_of_each_point():
    curves = drawn().normal(size=(9, 5))
    expected = [interquartile_mean(curves[:, point]) for point in range(5)]
    np.testing.assert_allclose(interquartile_mean(curves), expected)


@given(seeds)
def test_an_interval_lies_within_the_seeds_and_is_the_same_for_the_same_generator(
    values,
):
    low, high = bootstrap_interval(values, interquartile_mean, drawn(), resamples=100)
    assert values.min() - 1e-9 <= low <= high <= values.max() + 1e-9
    assert (low, high) == bootstrap_interval(
        values, interquartile_mean, drawn(), resamples=100
    )


def test_an_interval_moves_and_stretches_with_the_seeds():
    values = drawn(1).normal(size=7)
    plain = bootstrap_interval(values, interquartile_mean, drawn())
    moved = bootstrap_interval(3 * values + 10, interquartile_mean, drawn())
    np.testing.assert_allclose(moved, [3 * end + 10 for end in plain])


def test_the_interval_of_a_curve_is_that_of_each_point_under_the_same_resamples():
    """Also where the curve is so long that it is worked on in parts."""
    curves = drawn(1).normal(size=(5, 1300))
    low, high = bootstrap_interval(curves, interquartile_mean, drawn(), resamples=2000)
    for point in (0, 199, 200, 201, 1299):
        alone = bootstrap_interval(
            curves[:, point], interquartile_mean, drawn(), resamples=2000
        )
        np.testing.assert_allclose((low[point], high[point]), alone)


def test_a_single_seed_has_an_interval_without_width():
    assert bootstrap_interval(np.array([3.0]), mean, drawn()) == (3.0, 3.0)


def test_about_95_of_100_intervals_hold_the_truth():
    generator = drawn(2)
    found = 0
    for _ in range(400):
        low, high = bootstrap_interval(
            generator.normal(size=20), mean, generator, resamples=300
        )
        found += int(low <= 0.0 <= high)
    # the percentile bootstrap of 20 seeds is a little narrow
    assert 0.88 <= found / 400 <= 0.98


@given(seeds, seeds)
def test_the_probability_of_improvement_is_the_share_of_pairs_that_are_won(x, y):
    won = [1.0 if a > b else 0.5 if a == b else 0.0 for a in x for b in y]
    assert probability_of_improvement([x], [y]) == pytest.approx(sum(won) / len(won))
    assert probability_of_improvement([x], [y]) + probability_of_improvement(
        [y], [x]
    ) == pytest.approx(1)
    low, high = improvement_interval([x], [y], drawn(), resamples=50)
    assert 0 <= low <= high <= 1


def test_several_tasks_are_those_of_rliable():
    """The numbers are those of `rliable.metrics` 1.2.0 for the same scores, (runs,
    tasks)."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(0.6, 0.3, (10, 3)), generator.normal(0.4, 0.4, (10, 3))
    assert interquartile_mean(x.T.ravel()) == pytest.approx(0.5564515162421313)
    assert probability_of_improvement([*x.T], [*y.T]) == pytest.approx(
        0.5533333333333333
    )
    low, high = improvement_interval([*x.T], [*y.T], drawn())
    assert low < 0.5533 < high


def test_a_resample_has_as_many_seeds_of_each_task():
    """The mean over two tasks, each of whose seeds agree, is certain only if they are
    strata."""
    values = np.array([0.0] * 5 + [1.0] * 5)
    assert bootstrap_interval(values, mean, drawn(), strata=(5, 5)) == (0.5, 0.5)
    low, high = bootstrap_interval(values, mean, drawn())
    assert low < 0.5 < high


def test_seeds_that_are_all_better_leave_no_doubt():
    x, y = np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 3.0])
    assert probability_of_improvement([x], [y]) == 1
    assert improvement_interval([x], [y], drawn()) == (1, 1)


def test_seeds_follow_from_the_wanted_width():
    """s = 1, so (1.96 / 0.5)² = 15.4 seeds for ± 0.5."""
    assert seeds_for_width([0.0, 1.0, 2.0], 0.5) == 16
    assert seeds_for_width([0.0, 1.0, 2.0], 100.0) == 2
    assert seeds_for_width([1.0], 0.5) is None
    assert seeds_for_width([1.0, 2.0], 0.0) is None
