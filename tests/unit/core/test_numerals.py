import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.text import significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (-0.0, "0"),
        (12345.6, "12,346"),
        (428.8, "429"),
        (99.5, "99.5"),
        (99.94, "99.9"),
        (99.95, "100"),
        (-21.04, "-21.0"),
        (0.7384, "0.738"),
        (0.5, "0.500"),
        (0.000123456, "0.000123"),
        (1.5e-9, "1.50e-09"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_has_three_significant_digits_at_any_scale(value, text):
    assert significant(value) == text


@given(st.floats(-1e9, 1e9))
def test_a_shown_number_is_rounded_at_the_third_digit(value):
    shown = float(significant(value).replace(",", ""))
    assert abs(shown - value) <= 0.005001 * abs(value)
