from types import SimpleNamespace

import numpy as np
import pytest

from slm_lab.charts.axis import x_axis
from slm_lab.charts.final_returns import ending, improvement, text_table
from slm_lab.charts.overlay import Seeds, overlay, overlay_text
from slm_lab.charts.statistics import interquartile_mean
from slm_lab.metrics.lines import Line


def flat(y, start=0.0, stop=10.0):
    x = np.arange(start, stop + 0.5)
    return Line(x, np.full_like(x, y))


def seeds(*lines, label="a", planned=None):
    frames, last = (np.array([line[axis][-1] for line in lines]) for axis in (0, 1))
    return Seeds(label, lines, last, frames, planned or len(lines))


def drawn(*groups, middle="mean"):
    curves = overlay(groups, middle)
    return SimpleNamespace(curves=curves, subtitle=overlay_text(groups, middle, curves))


def numbers(*groups):
    return [ending(group, np.random.default_rng(0)) for group in groups]


def test_the_mean_has_a_band_of_one_standard_deviation():
    over = drawn(seeds(flat(1), flat(3)))
    (curve,) = over.curves
    assert (curve.mean == 2).all()
    assert (curve.band.low == 1).all()
    assert (curve.band.high == 3).all()
    assert over.subtitle == "mean ± 1 std of 2 seeds each"


def test_the_interquartile_mean_and_its_interval_leave_the_outlier_out():
    over = drawn(seeds(*map(flat, (1, 2, 3, 4, 1000))), middle="iqm")
    (curve,) = over.curves
    np.testing.assert_allclose(
        curve.mean, interquartile_mean(np.array([1.0, 2, 3, 4, 1000]))
    )
    assert (curve.band.low >= 1).all()
    assert (curve.band.low <= curve.mean).all()
    assert (curve.band.high >= curve.mean).all()
    assert "95 % bootstrap interval" in over.subtitle


def test_the_interval_of_one_group_does_not_depend_on_the_groups_after_it():
    lines = [flat(y) for y in np.random.default_rng(1).normal(size=6)]
    alone = drawn(seeds(*lines), middle="iqm").curves[0]
    beside = drawn(seeds(*lines), seeds(*lines, label="b"), middle="iqm").curves[0]
    np.testing.assert_array_equal(alone.band.low, beside.band.low)


def test_one_training_is_drawn_as_it_is():
    over = drawn(seeds(flat(1)))
    np.testing.assert_array_equal(over.curves[0].mean, flat(1).y)
    assert over.curves[0].band is None
    assert over.subtitle == "one training each"


@pytest.mark.parametrize("middle", ["mean", "iqm"])
def test_where_some_seeds_have_no_values_the_curve_is_dashed_and_has_no_band(middle):
    over = drawn(seeds(flat(1), flat(3), flat(5, stop=4.0)), middle=middle)
    solid, dashed = over.curves
    known = np.isfinite(solid.band.low)
    assert (solid.style, dashed.style) == ("solid", "dashed")
    assert solid.x[known].tolist() == [0, 1, 2, 3, 4]
    assert dashed.x[np.isfinite(dashed.mean)].tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert (dashed.mean[5:] == 2).all()
    assert (dashed.label, dashed.band, dashed.ink) == ("", None, solid.ink)
    assert over.subtitle.endswith("dashed where not all have values")


def test_seeds_that_never_meet_still_have_a_label():
    over = drawn(seeds(flat(1, 0, 4), flat(2, 20, 30)))
    assert [curve.label for curve in over.curves] == ["a"]


def test_labels_say_how_many_seeds_there_are_where_the_numbers_differ():
    over = drawn(seeds(flat(1)), seeds(flat(1), flat(2), label="b"))
    assert [curve.label for curve in over.curves] == ["a (1 seed)", "b (2 seeds)"]


def test_no_two_of_many_curves_look_alike():
    over = drawn(*(seeds(flat(y), label=str(y)) for y in range(21)))
    assert len({curve.ink for curve in over.curves}) == 21


def test_training_time_is_drawn_in_the_unit_that_suits_the_longest():
    assert x_axis("wall_t", 100.0).unit_size == 1
    assert x_axis("wall_t", 5e4).unit_size == 3600
    assert x_axis("total_frames", 5e4).column == "total_frame"


def test_the_table_has_the_ends_of_all_seeds():
    lines = [flat(1), flat(2), flat(6, stop=8.0)]
    one = numbers(seeds(*lines, planned=4))[0]
    assert (one.mean, one.std) == (3.0, pytest.approx(np.std([1, 2, 6])))
    assert (one.iqm, one.highest, one.frames) == (3.0, 6.0, (8.0, 10.0))
    low, high = one.interval
    assert low <= one.iqm <= high
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


def without_end(group, *indices):
    """The group, in which no episode of these seeds has ended."""
    finals = group.final_return.copy()
    finals[list(indices)] = np.nan
    return group._replace(final_return=finals)


def test_a_seed_without_an_ended_episode_is_left_out_of_mean_and_interval():
    lines = [flat(y) for y in (1, 2, 3, 4, 6)]
    one, whole = numbers(without_end(seeds(*lines, flat(50)), 5), seeds(*lines))
    assert (one.mean, one.std, one.iqm) == (whole.mean, whole.std, whole.iqm)
    assert one.interval == whole.interval
    assert (one.seeds, whole.seeds) == (6, 5)


@pytest.mark.parametrize("count", [1, 4])
def test_without_any_ended_episode_there_are_dashes(count):
    group = without_end(seeds(*[flat(1)] * count), *range(count))
    (row,) = text_table(numbers(group)).rows
    assert (row[1], row[3:5]) == (f"{count}", ("–", "–"))


def test_two_groups_are_ranked_by_three_seeds_each_with_an_ended_episode():
    low, high = seeds(*map(flat, (1, 2, 3, 9))), seeds(*map(flat, (4, 5, 6)), label="b")
    random = np.random.default_rng(0)
    found = improvement([without_end(low, 3), high], random)
    assert (found.better, found.probability) == ("b", 1.0)
    assert improvement([without_end(low, 2, 3), high], random) is None
    assert improvement([low, without_end(high, 0)], random) is None
