import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from slm_lab.analysis.figure.axis import RETURNS, frames
from slm_lab.analysis.figure.figure import BAND_OPACITY, PALETTE, x_limits, y_limits
from slm_lab.analysis.figure.grid import Line
from slm_lab.analysis.overlay.overlay import Seeds, overlay, x_axis
from slm_lab.analysis.overlay.overlay_graph import write_overlay
from slm_lab.analysis.overlay.overlay_html import render_overlay_html
from slm_lab.analysis.overlay.overlay_png import render_overlay_png
from slm_lab.analysis.overlay.overlay_table import ending, improvement, text_table
from slm_lab.analysis.statistics import interquartile_mean


def flat(y, start=0.0, stop=10.0):
    x = np.arange(start, stop + 0.5)
    return Line(x, np.full_like(x, y))


def seeds(*lines, label="a", planned=None):
    frames, last = (np.array([line[axis][-1] for line in lines]) for axis in (0, 1))
    return Seeds(label, lines, last, frames, planned or len(lines))


def drawn(*groups, middle="mean", title="title", seed=0):
    random = np.random.default_rng(seed)
    return overlay(groups, frames(), RETURNS[1], title, middle, random)


def numbers(*groups):
    return [ending(group, np.random.default_rng(0)) for group in groups]


def traces_of(page):
    call = r'Plotly\.newPlot\(\s*"graph",\s*(\[.*\]),\s*(\{.*\}),\s*\{"displaylogo"'
    found = re.search(call, page.decode(), re.DOTALL)
    return json.loads(found[1]), json.loads(found[2])


def height(png):
    return Image.open(io.BytesIO(png)).size[1]


def test_the_mean_has_a_band_of_one_standard_deviation():
    over = drawn(seeds(flat(1), flat(3)))
    (curve,), (band,) = over.figure.curves, over.bands
    assert (curve.mean == 2).all()
    assert (band.low == 1).all()
    assert (band.high == 3).all()
    assert over.figure.subtitle == "mean ± 1 std of 2 seeds each"


def test_the_interquartile_mean_leaves_the_outlier_out_and_its_band_is_an_interval_around_it():
    over = drawn(seeds(*map(flat, (1, 2, 3, 4, 1000))), middle="iqm")
    (curve,), (band,) = over.figure.curves, over.bands
    np.testing.assert_allclose(curve.mean, interquartile_mean(np.array([1.0, 2, 3, 4, 1000])))
    assert (band.low >= 1).all()
    assert (band.low <= curve.mean).all()
    assert (band.high >= curve.mean).all()
    assert "95 % bootstrap interval" in over.figure.subtitle


def test_the_interval_of_one_group_does_not_depend_on_the_groups_after_it():
    lines = [flat(y) for y in np.random.default_rng(1).normal(size=6)]
    alone = drawn(seeds(*lines), middle="iqm").bands[0]
    beside = drawn(seeds(*lines), seeds(*lines, label="b"), middle="iqm").bands[0]
    np.testing.assert_array_equal(alone.low, beside.low)


def test_one_training_is_drawn_as_it_is():
    over = drawn(seeds(flat(1)))
    np.testing.assert_array_equal(over.figure.curves[0].mean, flat(1).y)
    assert over.bands == (None,)
    assert over.figure.subtitle == "one training each"


@pytest.mark.parametrize("middle", ["mean", "iqm"])
def test_where_some_seeds_have_no_values_the_curve_is_dashed_and_has_no_band(middle):
    over = drawn(seeds(flat(1), flat(3), flat(5, stop=4.0)), middle=middle)
    solid, dashed = over.figure.curves
    known = np.isfinite(over.bands[0].low)
    assert (solid.style, dashed.style) == ("solid", "dashed")
    assert solid.x[known].tolist() == [0, 1, 2, 3, 4]
    assert dashed.x[np.isfinite(dashed.mean)].tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert (dashed.mean[5:] == 2).all()
    assert (dashed.label, over.bands[1], dashed.colour) == ("", None, solid.colour)
    assert over.figure.subtitle.endswith("dashed where not all have values")


def test_seeds_that_never_meet_still_have_a_label():
    over = drawn(seeds(flat(1, 0, 4), flat(2, 20, 30)))
    assert [curve.label for curve in over.figure.curves] == ["a"]


def test_labels_say_how_many_seeds_there_are_where_the_numbers_differ():
    over = drawn(seeds(flat(1)), seeds(flat(1), flat(2), label="b"))
    assert [curve.label for curve in over.figure.curves] == ["a (1 seed)", "b (2 seeds)"]


def test_no_two_of_many_curves_look_alike():
    over = drawn(*(seeds(flat(y), label=str(y)) for y in range(21)))
    assert len({(curve.colour % 7, curve.tint) for curve in over.figure.curves}) == 21


def test_the_view_has_room_for_curves_and_bands():
    over = drawn(seeds(*map(flat, (0, 0, 0, 100))), seeds(flat(-5), label="b"), middle="iqm")
    low, high = y_limits(over.in_view)
    assert low < -5
    assert high > max(float(over.bands[0].high.max()), 25)
    assert x_limits(over.in_view) == x_limits(over.figure.curves)


def test_training_time_is_drawn_in_the_unit_that_suits_the_longest():
    assert x_axis("wall_t", 100.0).unit_size == 1
    assert x_axis("wall_t", 5e4).unit_size == 3600
    assert x_axis("total_frames", 5e4).column == "total_frame"


def test_both_files_are_written_and_the_page_finds_plotly_beside_it(tmp_path):
    over = drawn(seeds(flat(1), flat(2)), seeds(flat(3), label="b"), middle="iqm")
    png, page = write_overlay(over, tmp_path / "plots", "plot_y_vs_x")
    assert png == tmp_path / "plots" / "plot_y_vs_x.png"
    assert 'src="plotly.min.js"' in page.read_text()
    assert (tmp_path / "plots" / "plotly.min.js").exists()


def test_the_picture_grows_with_its_legend_and_not_with_the_length_of_a_label():
    few, many = (
        drawn(*(seeds(flat(y), label=f"a long label of the run {y}") for y in range(count)))
        for count in (2, 9)
    )
    assert height(render_overlay_png(many)) > height(render_overlay_png(few))
    long = drawn(seeds(flat(1), label="x" * 90))
    assert height(render_overlay_png(long)) == height(render_overlay_png(few))


def test_a_band_is_drawn_between_its_ends():
    over = drawn(seeds(flat(-1), flat(1)), seeds(flat(-4), label="b"), seeds(flat(4), label="c"))
    pixels = np.asarray(Image.open(io.BytesIO(render_overlay_png(over))).convert("RGB"))
    blue = np.array([int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)])
    shade = 255 + BAND_OPACITY * (blue - 255)
    in_plot = pixels[118 : 118 + 455, 700].astype(float)
    top, *_, bottom = np.flatnonzero(np.abs(in_plot - shade).max(axis=1) < 6)
    assert (top + bottom) / 2 == pytest.approx(455 / 2, abs=3)
    assert bottom - top == pytest.approx(455 * 2 / (8 * 1.12), abs=4)


def test_a_click_in_the_legend_hides_a_curve_with_its_band_and_its_dashed_end():
    page = render_overlay_html(
        drawn(seeds(flat(1), flat(3), flat(5, stop=4.0)), seeds(flat(2), label="<b>")), "p.js"
    )
    traces, layout = traces_of(page)
    assert [trace["legendgroup"] for trace in traces] == ["0", "0", "0", "1"]
    names = [trace.get("name") for trace in traces]
    assert names == [None, "a (3 seeds)", "a (3 seeds)", "&lt;b&gt; (1 seed)"]
    assert [t["showlegend"] for t in traces] == [False, True, False, True]
    assert layout["hovermode"] == "x unified"


def test_the_table_has_the_ends_of_all_seeds():
    lines = [flat(1), flat(2), flat(6, stop=8.0)]
    one = numbers(seeds(*lines, planned=4))[0]
    assert (one.mean, one.std) == (3.0, pytest.approx(np.std([1, 2, 6])))
    assert (one.iqm, one.highest, one.frames) == (3.0, 6.0, (8.0, 10.0))
    assert one.interval.low <= one.iqm <= one.interval.high
    (row,) = text_table([one]).rows
    assert row[1:3] == ("3 of 4", "8 – 10")


def test_the_highest_value_may_have_been_reached_before_the_end():
    rising_and_falling = Line(np.arange(3.0), np.array([1.0, 9.0, 2.0]))
    assert numbers(seeds(rising_and_falling))[0].highest == 9


def test_of_a_single_seed_there_is_no_interval():
    (row,) = text_table(numbers(seeds(flat(1)))).rows
    assert row == ("a", "1", "10", "1.00", "–", "1.00")


def test_the_better_of_two_groups_is_named_first_if_both_have_enough_seeds():
    low, high = seeds(*map(flat, (1, 2, 3))), seeds(*map(flat, (4, 5, 6)), label="b")
    random = np.random.default_rng(0)
    found = improvement([low, high], random)
    assert (found.better, found.worse, found.probability) == ("b", "a", 1.0)
    assert improvement([low, seeds(flat(1), flat(2))], random) is None
    assert improvement([low, high, low], random) is None
