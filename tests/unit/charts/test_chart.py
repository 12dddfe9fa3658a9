import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.charts.chart import (
    MAX_COLUMNS,
    Bar,
    Chart,
    Curve,
    Panel,
    alone,
    around,
    bar_places,
    curves_panel,
    grid,
    group_places,
    limits,
    single,
)
from slm_lab.charts.look import OKABE_ITO, colour, tick_text
from slm_lab.charts.page import content


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
    chart = single("", "", curves_panel("", "", curves))
    assert [curve.label for curve in chart.named] == ["all", "some", "each"]


def test_the_legend_names_a_curve_of_several_panels_once_and_a_page_in_each():
    x = np.arange(2.0)
    panels = [curves_panel("", "", [Curve("both", x, x)]) for _ in range(2)]
    chart = Chart("", "", (tuple(panels),), legend=True)
    assert len(chart.named) == 1
    lines = content(chart)["data"]
    assert [line["name"] for line in lines] == ["both", "both"]
    assert [line["showlegend"] for line in lines] == [True, False]


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
    low, high = curves_panel("", "", [curve]).y.ends
    assert low < -4
    assert high > 6


@pytest.mark.parametrize("count", range(1, 21))
def test_a_grid_holds_every_panel_once_in_reading_order(count):
    panels = [Panel(title=str(i)) for i in range(count)]
    rows = grid(panels)
    assert len({len(row) for row in rows}) == 1
    assert len(rows[0]) <= MAX_COLUMNS
    chart = Chart("", "", rows)
    assert chart.panels == panels
    assert [(p.height, p.width) for p in chart.places] == [(1, 1)] * count


def test_a_panel_in_several_cells_covers_all_of_them():
    one, other, tall = (Panel(title=name) for name in ("one", "other", "tall"))
    places = Chart("", "", ((one, tall), (other, tall))).places
    assert [place.part.title for place in places] == ["one", "tall", "other"]
    assert [(place.height, place.width) for place in places] == [(1, 1), (2, 1), (1, 1)]


def test_a_point_is_alone_where_both_neighbours_are_missing():
    nan = np.nan
    assert alone(np.array([1.0, nan, 2.0, 3.0, nan, 4.0])) == [0, 5]
    assert alone(np.array([nan])) == []


def test_bars_stand_apart_and_groups_further_apart():
    bars = [Bar(str(i), 1.0, "", 1.0, group=group) for i, group in enumerate("aabbb")]
    apart = np.diff(bar_places(bars))
    assert apart[0] == apart[2] == apart[3] < apart[1]
    assert group_places(bars)["a"] == 0.5
    assert bar_places([]).size == 0


def test_a_logarithmic_axis_leaves_out_what_has_no_place_on_it():
    x = np.arange(3.0)
    y = np.array([0.1, 10.0, -1.0])
    panel = curves_panel("", "", [Curve("", x, y, around(y, np.ones(3)))], log=True)
    (curve,) = panel.curves
    np.testing.assert_array_equal(curve.mean, [0.1, 10.0, np.nan])
    assert np.nanmin(curve.band.low) > 0
    assert 0 < panel.y.ends[0] < 0.1


def test_less_strength_is_on_the_way_to_white():
    assert [colour(0), colour(0, 0.0), colour(6, 0.5)] == [
        OKABE_ITO[0],
        "#FFFFFF",
        "#999999",
    ]
