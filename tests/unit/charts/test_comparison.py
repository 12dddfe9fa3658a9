import csv
import io

import numpy as np
import pytest
from PIL import Image

from slm_lab.charts.chart import group_places
from slm_lab.charts.comparison import (
    clocks,
    dashboard,
    draw_comparison,
    return_overview,
    speed_up_chart,
    write_tables,
)
from slm_lab.charts.look import colour
from slm_lab.charts.page import render_page
from slm_lab.charts.speeds import VariantResult, Way, summary_table
from tests.unit.charts.modes import comparison, outcome, training
from tests.unit.charts.page import plot

FAILED = VariantResult(Way("shared", 2), {}, {0: "boom"})
MODES = ("all_reduce", "synced", "shared", "actor_learner", "of_another_package")
COMPARISONS = {
    "nothing yet": comparison(VariantResult(Way("synced", 2), {}), seeds=3),
    "one process only": comparison(),
    "one seed": comparison(outcome("synced", 1, 900.0), outcome("synced", 2, 1700.0)),
    "a failure": comparison(
        outcome("synced", 2, 1700.0, 1800.0), FAILED, threshold=50.0, seeds=2
    ),
    "a lone row": comparison(
        VariantResult(Way("synced", 2), {0: training(2, budget=200)})
    ),
    "all of them": comparison(
        *(outcome(mode, n, 900.0 * n, 950.0 * n) for mode in MODES for n in (1, 2, 4)),
        threshold=50.0,
        seeds=2,
    ),
}


def words(board):
    return " ".join(board.notes)


def bars_of(every):
    (panel,) = speed_up_chart(every).panels
    return panel


def overview_of(comparison, clock):
    (x,) = (x for x in clocks(comparison) if x.file == clock)
    return return_overview(comparison, x)


@pytest.mark.medium
@pytest.mark.parametrize("what", COMPARISONS)
def test_any_comparison_can_be_drawn(what, tmp_path):
    paths = draw_comparison(COMPARISONS[what], tmp_path, "small")
    paths += write_tables(COMPARISONS[what], tmp_path, "small")
    assert paths[0].name == "small_compare.png"
    stems = {path.stem.removeprefix("small_compare") for path in paths}
    clocks = {
        f"_mean_returns_vs_{x}" for x in ("total_frames", "frames", "wall_t", "cpu_t")
    }
    assert stems == {"", "_speed_up", "_df", "_trainings_df"} | clocks
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert picture.width >= 1280
        elif path.suffix == ".html":
            plot(path.read_bytes())
        else:
            list(csv.DictReader(io.StringIO(path.read_text())))


def test_the_notes_say_that_a_learner_is_one_process_more_than_its_actors():
    note = "actor_learner: workers are its actors; the learner is one process more"
    assert note in words(dashboard(comparison(outcome("actor_learner", 2, 1700.0))))
    assert note not in words(dashboard(comparison(outcome("synced", 2, 1700.0))))


def test_the_dashboard_has_four_clocks_and_a_colour_for_every_row_of_its_table():
    board = dashboard(COMPARISONS["all of them"])
    curves = [panel for panel in board.panels if not panel.bars]
    assert [panel.x.label.partition(" (")[0] for panel in curves] == [
        "total frames",
        "training time",
        "frames per process",
        "CPU time of all processes",
    ]
    inks = list(board.table.inks)
    assert len({colour(*ink) for ink in inks}) == len(board.table.text.rows) == 16
    assert [curve.ink for curve in curves[0].curves[1:]] == inks


def test_the_dashboard_says_what_was_measured_and_how():
    board = dashboard(COMPARISONS["all of them"])
    for text in ("10k total frames each", "2 seeds", "2 cores", "a processor"):
        assert text in board.subtitle
    for text in ("1k total frames", "medians", "† more workers than cores", "a note"):
        assert text in words(board)


def test_a_process_that_did_not_get_its_core_is_reported():
    assert "computed in" not in words(dashboard(COMPARISONS["one seed"]))
    starved = comparison()._replace(outcomes=(outcome("false", 1, 1000.0, cpu=0.6),))
    assert "computed in 60% of its time" in words(dashboard(starved))


def test_bands_are_drawn_where_they_can_be_told_apart():
    few, many = (
        dashboard(COMPARISONS[what]).panels[0].curves
        for what in ("a failure", "all of them")
    )
    assert [curve.band is not None for curve in few] == [False, True, True]
    assert all(curve.band is None for curve in many)


def test_the_more_workers_the_fuller_the_colour():
    bars = bars_of(COMPARISONS["all of them"]).bars
    for first in range(0, 15, 3):
        one, two, four = bars[first : first + 3]
        assert one.ink.colour == two.ink.colour == four.ink.colour
        assert one.ink.strength < two.ink.strength < four.ink.strength == 1


def test_a_panel_for_each_number_of_workers_holds_the_baseline_and_its_modes():
    overview = overview_of(COMPARISONS["all of them"], "total_frames")
    assert [panel.title for panel in overview.panels] == [
        "1 worker",
        "2 workers",
        "4 workers, on 2 cores †",
    ]
    for panel in overview.panels:
        assert len(panel.curves) == 1 + 1 + len(MODES)  # the threshold, the baseline
    named = [curve.label for curve in overview.named]
    assert named == ["one process", *MODES, "threshold 50"]
    assert overview.notes == ("mean ± 1 std of 2 seeds each",)


def test_workers_end_earlier_in_frames_per_process_but_not_in_total_frames():
    panels = dashboard(comparison(outcome("synced", 2, 1700.0))).panels
    total, _, frames, _ = (
        [curve.x[-1] for curve in panel.curves] for panel in panels if panel.curves
    )
    assert total == [10_000, 10_000]
    assert frames == [10_000, 5_000]


def test_bars_are_as_high_as_the_speed_ups_and_the_ideal_is_the_number_of_workers():
    every = COMPARISONS["all of them"]
    bars = bars_of(every).bars
    assert [bar.height for bar in bars] == summary_table(every)["speed_up"].tolist()[1:]
    assert [bar.mark for bar in bars] == [1, 2, 4] * len(MODES)
    assert [bar.hollow for bar in bars] == [False, False, True] * len(MODES)
    assert list(group_places(bars)) == list(MODES)
    assert all(bar.interval[0] < bar.interval[1] for bar in bars)
    page = render_page([speed_up_chart(every)], "p.js")
    (drawn, marks), layout = plot(page)
    assert drawn["y"] == [bar.height for bar in bars]
    assert marks["y"] == [1, 2, 4] * len(MODES)
    assert "more workers than cores" in page.decode()
    names = [note["text"] for note in layout["annotations"]]
    assert [name.replace("<br>", "") for name in names] == [
        f"<b>{mode}</b>" for mode in MODES
    ]


def test_a_variant_that_failed_has_a_place_and_a_word_but_no_bar():
    every = COMPARISONS["a failure"]
    *_, bar = bars_of(every).bars
    assert np.isnan(bar.height)
    assert (bar.text, bar.mark) == ("failed", 2.0)
    (drawn, *_), _ = plot(render_page([speed_up_chart(every)], "p.js"))
    assert (drawn["y"][-1], drawn["text"][-1]) == (0, "failed")


def test_with_one_seed_nothing_speaks_of_several():
    one = dashboard(COMPARISONS["one seed"])
    assert "1 seed " in one.subtitle
    assert "medians" not in words(one)
    assert not any("all seeds" in panel.hint for panel in one.panels)


def test_the_axis_of_speed_ups_shows_all_bars_and_marks():
    panel = bars_of(COMPARISONS["all of them"])
    bottom, top = panel.y.ends
    assert bottom == 0
    assert all(max(*bar.interval, bar.mark) < top for bar in panel.bars)


def test_words_from_outside_are_text_and_no_markup():
    every = comparison(outcome("synced", 2, 1700.0))
    every = every._replace(title="<i>x</i>", notes=("</script>",))
    page = render_page([dashboard(every)], "p.js").decode()
    assert page.count("</script>") == 2
    assert "<i>" not in page
