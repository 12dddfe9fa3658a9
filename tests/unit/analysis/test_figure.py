import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.analysis.figure import Curve, in_legend_order, runs, tick_text


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
