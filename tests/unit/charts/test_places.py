import numpy as np
import pytest

from slm_lab.charts.search import (
    MISSING,
    MOST_CATEGORIES,
    number_places,
    variable_places,
)
from tests.unit.charts.trials import varied

LOG = varied("lr", "loguniform")


def texts(places):
    return list(places.scale.categories)


def test_log_uniform_variables_have_a_logarithmic_axis():
    places = variable_places(LOG, [1e-5, 1e-3, MISSING, 1e-2])
    assert places.scale.log
    np.testing.assert_array_equal(places.at, [1e-5, 1e-3, np.nan, 1e-2])
    low, high = places.scale.ends
    assert 1e-6 < low < 1e-5
    assert 1e-2 < high < 1e-1


@pytest.mark.parametrize("value", [0.0031, 0.01, 7.0])
def test_a_logarithmic_axis_of_one_value_has_a_length(value):
    low, high = variable_places(LOG, [value, value]).scale.ends
    assert low < value < high


def test_numbers_that_are_not_positive_have_a_plain_axis():
    assert not variable_places(LOG, [0.0, 1.0]).scale.log


def test_kinds_stand_in_the_order_of_the_spec_with_those_that_no_trial_has():
    variable = varied("net", "choice", ([64, 64], None, "relu", True))
    places = variable_places(variable, ["relu", [64, 64], MISSING])
    assert texts(places) == ["64, 64", "null", "relu", "true"]
    np.testing.assert_array_equal(places.at, [2, 0, np.nan])


def test_a_value_that_the_spec_does_not_list_gets_its_own_position():
    places = variable_places(varied("net", "choice", ("a",)), ["b", "a"])
    np.testing.assert_array_equal(places.at, [1, 0])


def test_numbers_picked_from_a_list_are_evenly_spaced_and_in_their_order():
    places = variable_places(varied("size", "choice", (128, 32, 64)), [64, 128, 128])
    assert texts(places) == ["32", "64", "128"]
    np.testing.assert_array_equal(places.at, [1, 2, 2])


def test_a_long_list_of_numbers_has_an_axis_of_numbers():
    values = tuple(10 * i for i in range(MOST_CATEGORIES + 1))
    assert not variable_places(
        varied("x", "grid_search", values), [0, 30]
    ).scale.categories


def test_whole_numbers_close_together_have_a_place_each():
    assert texts(variable_places(varied("x", "randint"), [2, 5])) == [
        "2",
        "3",
        "4",
        "5",
    ]
    far = variable_places(varied("x", "randint"), [2, 500])
    assert far.scale.whole
    assert not far.scale.categories


def test_trials_of_one_category_stand_side_by_side_and_near_to_it():
    places = variable_places(varied("x", "choice", ("a", "b")), ["a", "b"] * 100)
    assert len(set(places.beside.tolist())) == 200
    assert np.abs(places.beside - places.at).max() < 0.3


def test_numbers_stay_where_they_are():
    places = number_places([1.0, 1.0, None])
    np.testing.assert_array_equal(places.beside, [1, 1, np.nan])


def test_a_search_without_values_has_an_axis():
    for sampler in ("choice", "uniform", "loguniform", "randint"):
        low, high = variable_places(varied("x", sampler), [MISSING]).scale.ends
        assert low < high
