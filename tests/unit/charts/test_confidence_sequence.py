"""The confidence sequence of a difference: never too sure, whatever the returns are."""

from itertools import pairwise, product

import numpy as np
import pytest

from slm_lab.charts.confidence_sequence import ConfidenceSequence

KINDS = {
    "normal": lambda generator, size: generator.normal(100, 20, size),
    "heavy tails": lambda generator, size: 50 + generator.standard_t(1.5, size),
    "skewed": lambda generator, size: generator.exponential(300, size),
    "solved or not": lambda generator, size: np.where(
        generator.random(size) < 0.3, 500.0, generator.normal(60, 20, size)
    ),
    "whole numbers": lambda generator, size: generator.integers(9, 12, size) * 1.0,
}


def pairs(kind, count, seed=0, effect=0.0):
    """Final returns (count,) of A and of B, which is better by `effect`."""
    a, b = KINDS[kind](np.random.default_rng(seed), (2, count))
    return a, b + effect


def wealth(a, b, effect, direction):
    return np.exp(ConfidenceSequence(a, b)._log_wealth(effect, direction))


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_if_a_and_b_are_the_same_no_bet_gains_on_average(kind, direction):
    """Then every swap within pairs is equally likely; here are all 2⁸ of them."""
    both = np.stack(pairs(kind, 8))
    gains = []
    for swaps in product([False, True], repeat=8):
        a, b = np.where(swaps, both[::-1], both)
        gains.append(wealth(a, b, 0.0, direction))
    np.testing.assert_allclose(np.mean(gains, axis=0), 1.0, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_true_effect_is_left_out_in_at_most_five_percent_of_all_tests(kind):
    """Looked at after every pair, over 400 tests of 25 pairs."""
    effect = 31.0
    misses = 0
    for seed in range(400):
        sequence = ConfidenceSequence(*pairs(kind, 25, seed, effect))
        misses += sequence.excludes(effect, 1) or sequence.excludes(effect, -1)
    assert misses <= 400 * 0.05


def test_seeds_of_different_deviations_are_no_reason_for_a_false_alarm():
    generator = np.random.default_rng(0)
    alarms = 0
    for _ in range(400):
        a = generator.normal(100, 5, 25)
        b = generator.normal(100, 60, 25)
        sequence = ConfidenceSequence(a, b)
        alarms += sequence.excludes(0.0, 1) or sequence.excludes(0.0, -1)
    assert alarms <= 400 * 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_never_widens_and_has_both_ends_after_seven_pairs(kind):
    low, high = ConfidenceSequence(*pairs(kind, 30, effect=10.0)).intervals
    assert (np.diff(low[6:]) >= 0).all()
    assert (np.diff(high[6:]) <= 0).all()
    assert np.isfinite([*low[6:], *high[6:]]).all()
    assert np.isinf([*low[:5], *high[:5]]).all(), "five signs agree too often by chance"


@pytest.mark.parametrize("kind", KINDS)
def test_an_effect_is_excluded_where_it_lies_outside_of_the_interval(kind):
    sequence = ConfidenceSequence(*pairs(kind, 20, effect=10.0))
    low, high = (float(end[-1]) for end in sequence.intervals)
    step = 1e-6 * (high - low)
    for effect in np.linspace(low - 50, high + 50, 31):
        is_inside = low + step < effect < high - step
        excluded = sequence.excludes(effect, 1) or sequence.excludes(effect, -1)
        assert excluded != is_inside or abs(effect - low) < step
    assert sequence.excludes(low, 1)
    assert not sequence.excludes(low + step, 1)
    assert sequence.excludes(high, -1)
    assert not sequence.excludes(high - step, -1)


def test_the_interval_has_the_units_and_the_sign_of_the_difference():
    a, b = pairs("normal", 15, effect=20.0)
    low, high = (end[-1] for end in ConfidenceSequence(a, b).intervals)
    scaled = ConfidenceSequence(1000 + 7 * a, 1000 + 7 * b).intervals
    np.testing.assert_allclose([end[-1] for end in scaled], [7 * low, 7 * high], 1e-6)
    swapped = ConfidenceSequence(b, a).intervals
    np.testing.assert_allclose([end[-1] for end in swapped], [-high, -low], 1e-6)
    shifted = ConfidenceSequence(a, b + 50).intervals
    moved = [low + 50, high + 50]
    np.testing.assert_allclose([end[-1] for end in shifted], moved, 1e-6)


@pytest.mark.parametrize("effect", [-40.0, 15.0, 30.0, 200.0])
def test_no_effect_is_excluded_sooner_than_said_before(effect):
    a, b = pairs("normal", 40, effect=effect)
    for direction in (1, -1):
        fewest = [
            ConfidenceSequence(a[:count], b[:count]).pairs_to_exclude(0.0, direction)
            for count in range(41)
        ]
        assert fewest[0] == 6
        for before, after in pairwise(fewest):
            assert after >= before - 1


def test_six_pairs_decide_where_one_is_always_far_better():
    a = np.array([10.0, 11, 9, 10, 12, 10])
    assert ConfidenceSequence(a, a + 500).excludes(0.0, 1)
    assert not ConfidenceSequence(a[:5], a[:5] + 500).excludes(0.0, 1)


def test_more_confidence_takes_more_pairs():
    nothing = np.empty(0)
    fewest = [
        ConfidenceSequence(nothing, nothing, confidence).pairs_to_exclude(0.0, 1)
        for confidence in (0.8, 0.95, 0.99, 0.999)
    ]
    assert fewest == sorted(set(fewest))


@pytest.mark.parametrize("gap", [0.0, 5.0])
def test_seeds_that_all_agree_leave_their_difference_alone(gap):
    solved = np.full(10, 500.0)
    low, high = ConfidenceSequence(solved - gap, solved).intervals
    assert low[-1] == pytest.approx(gap, abs=1e-5)
    assert high[-1] == pytest.approx(gap, abs=1e-5)


def test_a_late_outlier_costs_a_bounded_share_of_the_wealth():
    a, b = pairs("normal", 12, effect=30.0)
    b[-1] = -1e9
    before, after = wealth(a, b, 0.0, 1)[-2:]
    assert before / 20 <= after * 1.01
