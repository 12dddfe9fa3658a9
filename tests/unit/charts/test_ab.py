"""The picture of a test of A against B."""

import numpy as np
import pytest

from slm_lab.charts.ab import PairedReturns, ab_chart, draw_ab, pairs_table
from slm_lab.charts.chart import alone
from slm_lab.charts.confidence_sequence import ConfidenceSequence


def returns(count, smallest=None):
    generator = np.random.default_rng(0)
    a, b = generator.normal(100, 20, (2, count))
    return PairedReturns(
        title="small on CartPole-v1: A against B",
        sentence="B is better",
        seeds=range(5, 5 + count),
        a=a,
        b=b,
        interval=ConfidenceSequence(a, b).intervals,
        confidence=0.95,
        smallest=smallest,
        max_frame=10_000,
    )


def curves(panel):
    return {curve.label: curve for curve in panel.curves if curve.label}


def test_each_training_is_a_dot_and_each_pair_a_line():
    measured = returns(9)
    left, _ = ab_chart(measured).panels
    for label, expected in (("A", measured.a), ("B", measured.b)):
        curve = curves(left)[label]
        dots = alone(curve.mean)
        np.testing.assert_array_equal(curve.mean[dots], expected)
        np.testing.assert_array_equal(curve.x[dots], np.arange(1, 10))
    lines = [curve for curve in left.curves if not curve.label]
    assert len(lines) == 9


def test_the_band_is_the_interval_where_it_has_ends():
    measured = returns(9)
    _, right = ab_chart(measured).panels
    mean = curves(right)["mean of B − A, 95 % interval"]
    low, high = measured.interval
    known = np.isfinite(low)
    np.testing.assert_array_equal(mean.band.low[known], low[known])
    assert np.isnan(mean.band.low[~known]).all()
    assert mean.mean[-1] == pytest.approx((measured.b - measured.a).mean())
    assert right.y.ends[0] < low[-1] < high[-1] < right.y.ends[1]


def test_a_difference_that_does_not_matter_is_drawn_on_both_sides():
    _, right = ab_chart(returns(7, smallest=15.0)).panels
    heights = [curve.mean[0] for curve in right.curves if curve.x.size == 2]
    assert sorted(heights) == [-15.0, 0.0, 15.0]
    assert "±15 does not matter" in curves(right)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_test_that_has_just_begun_can_be_drawn(count, tmp_path):
    paths = draw_ab(returns(count), tmp_path / "test", "small_ab")
    assert [path.name for path in paths] == ["small_ab.png", "small_ab.html"]
    assert len(pairs_table(returns(count))) == count
