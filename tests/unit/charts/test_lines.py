import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.charts import axis
from slm_lab.charts.axis import trailing_mean
from slm_lab.metrics.lines import Line, common_grid, interpolate, spread
from tests.unit.charts.session import session_rows


def line(x, y):
    return Line(np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))


LINES = st.lists(
    st.dictionaries(
        st.integers(0, 50), st.floats(-100, 100), min_size=1, max_size=10
    ).map(lambda points: line(sorted(points), [points[x] for x in sorted(points)])),
    min_size=1,
    max_size=5,
)


def test_the_grid_has_every_x_once():
    grid = common_grid([line([1, 2, 4], [0, 0, 0]), line([2, 3], [0, 0])])
    assert grid.tolist() == [1, 2, 3, 4]


def test_a_long_grid_is_replaced_by_even_steps_with_the_same_ends():
    grid = common_grid([line(range(0, 1001, 2), [0] * 501)], max_points=11)
    assert grid.tolist() == list(range(0, 1001, 100))


def test_nothing_is_made_up_outside_of_what_a_session_has_seen():
    values = interpolate([line([2, 4], [10, 20])], np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_equal(values, [[np.nan, 10, 15, 20, np.nan]])


def test_mean_and_deviation_are_over_the_sessions_that_have_data():
    lines = [line([1, 2, 3], [0, 0, 0]), line([2, 3], [4, 8]), line([3], [1])]
    over = spread(lines, common_grid(lines))
    assert over.sessions.tolist() == [1, 2, 3]
    assert over.mean.tolist() == [0, 2, 3]
    np.testing.assert_allclose(over.std, [0, 2, np.std([0, 8, 1])])


def test_points_that_no_session_covers_are_left_out():
    lines = [line([0, 1], [5, 5]), line([9, 10], [7, 7])]
    over = spread(lines, np.linspace(0, 10, 11))
    assert over.x.tolist() == [0, 1, 9, 10]
    assert over.mean.tolist() == [5, 5, 7, 7]


@given(LINES)
def test_the_mean_stays_among_the_sessions(lines):
    over = spread(lines, common_grid(lines))
    values = interpolate(lines, over.x)
    assert (np.nanmin(values, axis=0) - 1e-9 <= over.mean).all()
    assert (over.mean <= np.nanmax(values, axis=0) + 1e-9).all()
    assert (over.std[over.sessions == 1] == 0).all()


POINTS = st.tuples(st.integers(0, 20), st.floats(-100, 100), st.integers(0, 3))


@given(st.lists(POINTS, min_size=1, max_size=20), st.integers(1, 30), st.integers(0, 9))
def test_a_trailing_mean_is_that_of_the_episodes_in_the_window_or_of_the_fewest(
    points, width, fewest
):
    points.sort()
    x, y, episodes = (
        np.array(part, dtype=np.float64) for part in zip(*points, strict=True)
    )
    grid = np.arange(-1.0, 22.0)
    found = trailing_mean(Line(x, y), episodes, grid, width, fewest)
    for at, mean in zip(grid, found, strict=True):
        window = (x > at - width) & (x <= at)
        for row in reversed(np.flatnonzero(x <= at)):
            window[row] |= episodes[window].sum() < fewest
        inside = np.repeat(y[window], episodes[window].astype(int))
        expected = inside.mean() if inside.size else np.nan
        np.testing.assert_allclose(mean, expected, atol=1e-9)


@pytest.mark.parametrize("count", [30, 1000])
def test_the_label_of_the_moving_average_names_the_window_that_is_drawn(count):
    """One episode a row: few rows are averaged over episodes, many over frames."""
    returns = np.random.default_rng(0).normal(size=count)
    label = axis.RETURNS[1].label
    named = re.fullmatch(r"mean return over (\d+) % of frames, ≥ (\d+) episodes", label)
    assert named is not None
    window = max(int(named[2]), count * int(named[1]) // 100)
    expected = [returns[max(0, i + 1 - window) : i + 1].mean() for i in range(count)]
    drawn = axis.line(session_rows(returns), axis.frames(), axis.RETURNS[1])
    np.testing.assert_allclose(drawn.y, expected)
