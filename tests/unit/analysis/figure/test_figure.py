import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.analysis.figure.figure import (
    Curve,
    around,
    in_legend_order,
    limits,
    runs,
    y_limits,
    y_scale,
)
from slm_lab.analysis.figure.look import PALETTE, tick_text, tinted


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [
        (50_000, 200_000, "50k"),
        (1_500_000, 2e6, "1.5M"),
        (500, 20_000, "500"),
        (-1_250, 1_500, "−1250"),
        (-12_500, 20_000, "−12.5k"),
        (0.02, 0.05, "0.02"),
        (2.5e-4, 3e-4, "2.5e−4"),
        (0.5e-4, 3e-4, "0.5e−4"),
        (0.0, 3e-4, "0"),
        (-0.0, 1.0, "0"),
        (0.0, 0.0, "0"),
        (5e11, 9e11, "500G"),
        (2.5e15, 3e15, "2.5e15"),
        (-0.5e15, 3e15, "−0.5e15"),
    ],
)
def test_ticks_are_short(value, largest, text):
    assert tick_text(value, largest) == text


def test_the_legend_names_results_before_what_they_were_made_from():
    x = np.zeros(1)
    curves = [
        Curve("each", x, x, style="faint"),
        Curve("", x, x, style="faint"),
        Curve("some", x, x, style="dashed"),
        Curve("all", x, x),
    ]
    assert [curve.label for curve in in_legend_order(curves)] == ["all", "some", "each"]


@given(st.lists(st.booleans(), max_size=20))
def test_runs_are_the_longest_unbroken_stretches(values):
    mask = np.array(values, dtype=np.bool_)
    rebuilt = np.zeros_like(mask)
    for stretch in runs(mask):
        assert stretch.stop > stretch.start
        assert stretch.stop == len(mask) or not mask[stretch.stop]
        rebuilt[stretch] = True
    assert rebuilt.tolist() == mask.tolist()


@given(
    st.lists(st.floats(-1e300, 1e300) | st.just(np.nan), max_size=20), st.floats(0, 0.2)
)
def test_an_axis_has_a_length_and_shows_every_value(values, margin):
    low, high = limits([np.array(values, dtype=np.float64)], margin)
    assert np.isfinite([low, high]).all()
    assert low < high
    assert all(low <= value <= high for value in values if not np.isnan(value))


@pytest.mark.parametrize("value", [0.0, 0.2, -1e-9, 1e17])
def test_values_that_are_alike_lie_in_the_middle_of_their_axis(value):
    low, high = limits([np.full(3, value)], 0.06)
    assert (low + high) / 2 == pytest.approx(value)


def test_the_band_is_inside_the_axis():
    mean = np.array([1.0, np.nan, 2.0])
    curve = Curve("", np.arange(3.0), mean, around(mean, np.array([5.0, np.nan, 1.0])))
    low, high = y_limits([curve])
    assert low < -4
    assert high > 6


@pytest.mark.parametrize(
    ("value", "text"), [(3e-4, "3e−4"), (0.0, "0"), (-200.0, "−200")]
)
def test_an_axis_of_values_that_never_change_has_one_number(value, text):
    flat = Curve("", np.arange(3.0), np.array([value, np.nan, value]))
    assert y_scale([flat, flat], 5).ticks == ((value, text),)
    assert (
        y_scale([flat, Curve("", np.arange(2.0), np.array([value, 1.0]))], 5).ticks
        == ()
    )
    assert y_scale([], 5).ticks == ()


def test_a_tint_is_on_the_way_to_white():
    assert [tinted(0, 0.0), tinted(0, 1.0), tinted(6, 0.5)] == [
        PALETTE[0],
        "#FFFFFF",
        "#999999",
    ]
