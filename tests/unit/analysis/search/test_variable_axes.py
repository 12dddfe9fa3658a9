import numpy as np
import pytest

from slm_lab.analysis.figure.look import SHADES, UNKNOWN, Shading, shade
from slm_lab.analysis.search.summary import Variable
from slm_lab.analysis.search.variable_axes import (
    MISSING,
    MOST_CATEGORIES,
    number_scale,
    variable_scale,
)

LOG = Variable("lr", "loguniform")


def texts(scale):
    return [text for _, text in scale.ticks]


def test_what_was_drawn_over_its_logarithm_has_an_axis_of_powers_of_ten():
    scale = variable_scale(LOG, [1e-5, 1e-3, MISSING, 1e-2])
    assert scale.log
    np.testing.assert_allclose(scale.at, [-5, -3, np.nan, -2])
    assert texts(scale) == ["1e−5", "1e−4", "1e−3", "1e−2"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.01, 10.0], ["0.01", "0.1", "1", "10"]),
        ([0.09, 0.6], ["0.1", "0.2", "0.5"]),
        ([1e-9, 1e3], ["1e−9", "1e−6", "1e−3", "1e0", "1e3"]),
    ],
)
def test_an_axis_of_powers_has_round_ticks_inside_its_ends(values, ticks):
    scale = variable_scale(LOG, values)
    assert texts(scale) == ticks
    assert all(scale.ends[0] <= place <= scale.ends[1] for place, _ in scale.ticks)


@pytest.mark.parametrize("value", [0.0031, 0.01, 7.0])
def test_an_axis_of_powers_of_one_value_has_ticks(value):
    scale = variable_scale(LOG, [value, value])
    assert scale.ends[0] < np.log10(value) < scale.ends[1]
    assert scale.ticks


def test_numbers_that_are_not_positive_have_a_plain_axis():
    assert not variable_scale(LOG, [0.0, 1.0]).log


def test_kinds_stand_in_the_order_of_the_spec_with_those_that_no_trial_has():
    variable = Variable("net", "choice", ([64, 64], None, "relu", True))
    scale = variable_scale(variable, ["relu", [64, 64], MISSING])
    assert texts(scale) == ["64, 64", "null", "relu", "true"]
    np.testing.assert_array_equal(scale.at, [2, 0, np.nan])


def test_a_value_that_the_spec_does_not_list_gets_a_place_of_its_own():
    scale = variable_scale(Variable("net", "choice", ("a",)), ["b", "a"])
    np.testing.assert_array_equal(scale.at, [1, 0])


def test_numbers_picked_from_a_list_are_evenly_spaced_and_in_their_order():
    scale = variable_scale(Variable("size", "choice", (128, 32, 64)), [64, 128, 128])
    assert texts(scale) == ["32", "64", "128"]
    np.testing.assert_array_equal(scale.at, [1, 2, 2])


def test_a_long_list_of_numbers_has_an_axis_of_numbers():
    values = tuple(10 * i for i in range(MOST_CATEGORIES + 1))
    assert not variable_scale(Variable("x", "grid_search", values), [0, 30]).ticks


def test_whole_numbers_close_together_have_a_place_each():
    assert texts(variable_scale(Variable("x", "randint"), [2, 5])) == ["2", "3", "4", "5"]
    far = variable_scale(Variable("x", "randint"), [2, 500])
    assert far.whole
    assert not far.ticks


def test_trials_of_one_category_stand_side_by_side_and_near_to_it():
    scale = variable_scale(Variable("x", "choice", ("a", "b")), ["a", "b"] * 100)
    assert len(set(scale.beside.tolist())) == 200
    assert np.abs(scale.beside - scale.at).max() < 0.3


def test_numbers_stay_where_they_are():
    scale = number_scale([1.0, 1.0, None])
    np.testing.assert_array_equal(scale.beside, [1, 1, np.nan])


def test_a_search_without_values_has_an_axis():
    for sampler in ("choice", "uniform", "loguniform", "randint"):
        low, high = variable_scale(Variable("x", sampler), [MISSING]).ends
        assert low < high


def test_more_is_darker_all_the_way():
    colours = [shade(share) for share in np.linspace(0, 1, 50)]
    assert (colours[0], colours[-1]) == (SHADES[0], SHADES[-1])
    light = [0.2126, 0.7152, 0.0722] @ np.array(
        [[int(each[i : i + 2], 16) for each in colours] for i in (1, 3, 5)]
    )
    assert (np.diff(light) < 0).all()


def test_what_has_no_value_is_grey():
    assert Shading("x", np.array([np.nan, 1.0]), (0.0, 1.0)).colours == [UNKNOWN, SHADES[-1]]
