import csv
import io
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from slm_lab.analysis.compare.compare_figure import (
    Bar,
    BarChart,
    dashboard,
    return_overviews,
    speed_up_chart,
)
from slm_lab.analysis.compare.compare_graph import draw_comparison
from slm_lab.analysis.compare.compare_html import render_chart_html, render_dashboard_html
from slm_lab.analysis.compare.compare_png import render_dashboard_png
from slm_lab.analysis.compare.comparison import Outcome, Variant
from slm_lab.analysis.figure.figure import PALETTE, tinted
from tests.unit.analysis.compare.modes import comparison, outcome, training

FAILED = Outcome(Variant("shared", 2), {}, {0: "boom"})
MODES = ("all_reduce", "synced", "shared", "actor_learner", "of_another_package")
COMPARISONS = {
    "nothing yet": comparison(Outcome(Variant("synced", 2), {}), seeds=3),
    "one process only": comparison(),
    "one seed": comparison(outcome("synced", 1, 900.0), outcome("synced", 2, 1700.0)),
    "a failure": comparison(outcome("synced", 2, 1700.0, 1800.0), FAILED, threshold=50.0, seeds=2),
    "a lone row": comparison(Outcome(Variant("synced", 2), {0: training(2, budget=200)})),
    "all of them": comparison(
        *(outcome(mode, n, 900.0 * n, 950.0 * n) for mode in MODES for n in (1, 2, 4)),
        threshold=50.0,
        seeds=2,
    ),
}


def plot(page):
    """The traces and the layout inside a page."""
    call = page.decode().split("Plotly.newPlot(")[1].split(",", 1)[1]
    decoder = json.JSONDecoder()
    traces, end = decoder.raw_decode(call.lstrip())
    layout, _ = decoder.raw_decode(call.lstrip()[end:].lstrip(", \n"))
    return traces, layout


def words_of(layout):
    return " ".join(note["text"] for note in layout["annotations"])


@pytest.mark.parametrize("what", COMPARISONS)
def test_any_comparison_can_be_drawn(what, tmp_path):
    paths = draw_comparison(COMPARISONS[what], tmp_path, "small")
    assert paths[0].name == "small_compare.png"
    stems = {path.stem.removeprefix("small_compare") for path in paths}
    clocks = {f"_mean_returns_vs_{x}" for x in ("total_frames", "frames", "wall_t", "cpu_t")}
    assert stems == {"", "_speed_up", "_df", "_trainings_df"} | clocks
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert picture.width >= 1280
        elif path.suffix == ".html":
            plot(path.read_bytes())
        else:
            list(csv.DictReader(io.StringIO(path.read_text())))


def test_who_sees_actors_counted_as_workers_is_told_that_the_learner_is_one_more():
    told = "actor_learner: workers are its actors; the learner is one process more"
    assert told in dashboard(comparison(outcome("actor_learner", 2, 1700.0))).notes
    assert told not in dashboard(comparison(outcome("synced", 2, 1700.0))).notes


def test_drawing_twice_gives_the_same_bytes():
    board = dashboard(COMPARISONS["all of them"])
    assert render_dashboard_png(board) == render_dashboard_png(board)
    assert render_dashboard_html(board, "p.js") == render_dashboard_html(board, "p.js")


def test_the_dashboard_has_four_clocks_and_a_colour_for_every_row_of_its_table():
    board = dashboard(COMPARISONS["all of them"])
    assert [plot.x_label.partition(" (")[0] for plot in board.plots] == [
        "total frames", "training time", "frames per process", "CPU time of all processes",
    ]  # fmt: skip
    assert len(board.swatches) == len(board.table.rows) == 16
    assert len(set(board.swatches)) == 16
    drawn = [(curve.colour, curve.tint) for curve in board.plots[0].panel.curves[1:]]
    assert drawn == list(board.swatches)


def test_the_dashboard_says_what_was_measured_and_how():
    board = dashboard(COMPARISONS["all of them"])
    for words in ("10k total frames each", "2 seeds", "2 cores", "a processor"):
        assert words in board.subtitle
    notes = " ".join(board.notes)
    for words in ("1000 total frames", "medians", "† more workers than cores", "a note"):
        assert words in notes


def test_a_process_that_did_not_get_its_core_is_told():
    assert not any("computed in" in note for note in dashboard(COMPARISONS["one seed"]).notes)
    starved = replace(comparison(), outcomes=(outcome("false", 1, 1000.0, cpu=0.6),))
    assert any("computed in 60% of its time" in note for note in dashboard(starved).notes)


def test_bands_are_drawn_where_they_can_be_told_apart():
    few = dashboard(COMPARISONS["a failure"])
    assert [curve.std is not None for curve in few.plots[0].panel.curves] == [False, True, True]
    many = dashboard(COMPARISONS["all of them"])
    assert all(curve.std is None for curve in many.plots[0].panel.curves)


def test_the_more_workers_the_fuller_the_colour():
    board = dashboard(COMPARISONS["all of them"])
    for first in range(1, 16, 3):
        (colour, *_), tints = zip(*board.swatches[first : first + 3], strict=True)
        assert all(swatch[0] == colour for swatch in board.swatches[first : first + 3])
        assert list(tints) == sorted(tints, reverse=True)
        assert tints[-1] == 0


def test_a_panel_for_each_number_of_workers_holds_the_baseline_and_its_modes():
    overview = return_overviews(COMPARISONS["all of them"])["total_frames"]
    assert [panel.title for panel in overview.panels] == [
        "1 worker", "2 workers", "4 workers, on 2 cores †",
    ]  # fmt: skip
    for panel in overview.panels:
        assert len(panel.curves) == 1 + 1 + len(MODES)  # the threshold, the baseline
    named = [curve.label for panel in overview.panels for curve in panel.curves if curve.label]
    assert named == ["one process", *MODES]
    assert "dashed: 50" in overview.subtitle


def test_a_mode_is_named_where_it_is_first_drawn():
    late = comparison(FAILED, outcome("synced", 2, 1700.0), outcome("shared", 4, 1700.0))
    first, second = return_overviews(late)["frames"].panels
    assert [curve.label for curve in first.curves] == ["one process", "synced"]
    assert [curve.label for curve in second.curves] == ["", "shared"]


def test_against_frames_per_process_workers_end_earlier_and_against_total_frames_together():
    board = dashboard(comparison(outcome("synced", 2, 1700.0)))
    total, _, frames, _ = ([curve.x[-1] for curve in plot.panel.curves] for plot in board.plots)
    assert total == [10_000, 10_000]
    assert frames == [10_000, 5_000]


def test_bars_are_as_high_as_the_speed_ups_and_the_ideal_is_the_number_of_workers():
    every = COMPARISONS["all of them"]
    chart = speed_up_chart(every)
    assert [bar.height for bar in chart.bars] == [s.speed_up for s in every.summaries[1:]]
    assert [bar.ideal for bar in chart.bars] == [1, 2, 4] * len(MODES)
    assert [bar.hollow for bar in chart.bars] == [False, False, True] * len(MODES)
    assert chart.groups == list(MODES)
    assert all(bar.high > bar.low for bar in chart.bars)
    traces, layout = plot(render_chart_html(chart, "p.js"))
    np.testing.assert_allclose(traces[0]["y"], [bar.height for bar in chart.bars], rtol=1e-9)
    assert "more workers than cores" in words_of(layout)


def test_a_variant_that_failed_has_a_place_and_a_word_but_no_bar():
    chart = speed_up_chart(COMPARISONS["a failure"])
    bar = chart.bars[-1]
    assert (bar.height, bar.note, bar.ideal) == (None, "failed", 2.0)
    traces, layout = plot(render_chart_html(chart, "p.js"))
    assert traces[0]["y"][-1] is None
    assert "failed" in words_of(layout)


def test_with_one_seed_nothing_speaks_of_several():
    one = dashboard(COMPARISONS["one seed"])
    assert "1 seed " in one.subtitle
    assert all("medians" not in note for note in one.notes)
    assert "spread" not in dict(one.bars.legend)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 9), st.floats(0, 9)), max_size=12))
def test_bars_stand_apart_inside_the_axes_and_groups_further_apart(given_bars):
    given_bars = sorted(given_bars)
    bars = tuple(
        Bar(group, "1", height, height, height, ideal, 0, 0.0, hollow=False)
        for group, height, ideal in given_bars
    )
    chart = BarChart("t", "s", "x", "y", bars, 1.0, ())
    low, high = chart.x_ends
    assert all(low + 0.5 <= place <= high - 0.5 for place in chart.places)
    for (one, other), (bar, following) in zip(pairwise(chart.places), pairwise(bars), strict=True):
        assert other - one == pytest.approx(1.0 if bar.group == following.group else 1.7)
    bottom, top = chart.y_ends
    assert bottom == 0
    assert all(max(bar.height, bar.ideal) < top for bar in bars)


def test_a_tint_is_on_the_way_to_white():
    assert tinted(0, 0.0) == PALETTE[0]
    assert tinted(0, 1.0) == "#FFFFFF"
    assert tinted(6, 0.5) == "#999999"


def test_words_from_outside_are_text_and_no_markup():
    every = comparison(outcome("synced", 2, 1700.0))
    every = replace(every, title="<i>x</i>", notes=("</script>",))
    page = render_dashboard_html(dashboard(every), "p.js").decode()
    assert page.count("</script>") == 3
    assert "<i>" not in page
