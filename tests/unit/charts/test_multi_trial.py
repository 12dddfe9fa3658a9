import time

import numpy as np
import pytest
from PIL import Image

from slm_lab.charts.axis import RETURNS
from slm_lab.charts.multi_trial import (
    COLOURED_TRIALS,
    draw_multi_trial_graphs,
    multi_trial_chart,
)
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import NO_ROWS, Rows
from tests.unit.charts.page import curves_of
from tests.unit.charts.trials import trial

STEMS = ("mean_returns_vs_frames", "mean_returns_ma_vs_frames")


def session(level=1.0, *, rows=20, every=100, returns=None):
    """Rows of a Session whose every return is `level`."""
    frame = np.arange(1, rows + 1) * float(every)
    values = np.full(rows, level) if returns is None else returns
    episodes = np.arange(1.0, rows + 1)
    columns = ("total_frame", "epi", "mean_return", "final_return_episodes")
    return Rows(columns, np.array([frame, episodes, values, np.zeros(rows)]))


def drawn(tmp_path, rows, outcomes, run_of=None):
    return draw_multi_trial_graphs(
        rows, outcomes, run_of or {}, tmp_path, "s", "PPO on CartPole-v1"
    )


def figure_of(count, **options):
    lines = {i: Line(np.arange(5.0), np.full(5, float(i))) for i in range(count)}
    outcomes = [trial(i, float(i), lr=0.001 * (i + 1), **options) for i in range(count)]
    return multi_trial_chart(lines, outcomes, RETURNS[0], "title")


def curve_of(tmp_path, monkeypatch, sessions, run_of):
    """The line of one Trial, as it is drawn."""
    figures = []
    module = "slm_lab.charts.multi_trial.write_chart"
    monkeypatch.setattr(module, lambda figure, *_: figures.append(figure) or [])
    drawn(tmp_path, {0: sessions}, [trial(0)], {0: run_of})
    (curve,) = curves_of(figures[0])
    return curve


@pytest.mark.parametrize("count", [0, 1, 4, 30])
def test_both_graphs_are_drawn_as_picture_and_page(tmp_path, count):
    rows = {i: [session(float(i)), session(float(i + 1))] for i in range(count)}
    paths = drawn(tmp_path, rows, [trial(i, float(i)) for i in range(count)])
    expected = [
        f"s_multi_trial_graph_{stem}.{end}" for stem in STEMS for end in ("png", "html")
    ]
    assert [path.name for path in paths] == expected
    with Image.open(paths[0]) as picture:
        assert picture.width == 1280
    assert all(path.stat().st_size for path in paths)


def test_the_best_are_in_colours_and_named_by_their_points():
    figure = figure_of(12)
    best = [curve for curve in curves_of(figure) if curve.style == "solid"]
    assert [curve.label for curve in best] == [
        "t11 lr 0.012",
        "t10 lr 0.011",
        "t9 lr 0.01",
        "t8 lr 0.009",
        "t7 lr 0.008",
    ]
    assert [curve.ink.colour for curve in best] == list(range(COLOURED_TRIALS))
    faint = [curve for curve in curves_of(figure) if curve.style == "faint"]
    assert [curve.label for curve in faint] == ["7 other trials"] + [""] * 6


def test_a_trial_that_did_not_finish_says_so_in_the_legend():
    assert (
        "(stopped at frame 5000)" in curves_of(figure_of(1, status="stopped"))[0].label
    )


def test_trials_that_failed_are_behind_the_others():
    assert [curve.style for curve in curves_of(figure_of(2, status="failed"))] == [
        "faint"
    ] * 2


def test_without_rows_there_is_a_note():
    figure = multi_trial_chart(
        {0: None}, [trial(0, None, "waiting")], RETURNS[0], "title"
    )
    assert (curves_of(figure), figure.panels[0].note) == ([], "no values yet")


def test_a_line_is_the_mean_over_the_sessions(tmp_path, monkeypatch):
    sessions = [session(1.0), session(3.0), NO_ROWS]
    curve = curve_of(tmp_path, monkeypatch, sessions, None)
    np.testing.assert_array_equal(curve.mean, np.full(20, 2.0))


def test_with_runs_it_is_the_mean_over_runs_of_the_means_of_their_workers(
    tmp_path, monkeypatch
):
    sessions = [session(1.0), session(3.0), session(8.0)]
    assert curve_of(tmp_path, monkeypatch, sessions, [0, 0, 1]).mean[0] == 5
    assert curve_of(tmp_path, monkeypatch, sessions, None).mean[0] == 4


def test_a_line_ends_where_most_sessions_have_ended(tmp_path, monkeypatch):
    sessions = [session(1.0, rows=20), session(1.0, rows=5), session(1.0, rows=6)]
    assert curve_of(tmp_path, monkeypatch, sessions, None).x[-1] == 600


def test_returns_that_are_missing_are_left_out(tmp_path, monkeypatch):
    returns = np.array([np.nan, np.nan, 4.0, 5.0])
    curve = curve_of(tmp_path, monkeypatch, [session(rows=4, returns=returns)], None)
    np.testing.assert_array_equal(curve.x, [300, 400])


def test_a_trial_whose_outcome_is_not_known_yet_is_drawn_behind():
    lines = {i: Line(np.arange(3.0), np.ones(3)) for i in range(2)}
    figure = multi_trial_chart(lines, [trial(0)], RETURNS[0], "title")
    assert [curve.style for curve in curves_of(figure)] == ["solid", "faint"]


def test_a_hundred_trials_are_drawn_at_once(tmp_path):
    rows = {i: [session(float(i), rows=500)] * 2 for i in range(100)}
    outcomes = [trial(i, float(i), lr=i / 100) for i in range(100)]
    drawn(tmp_path, {0: rows[0]}, outcomes[:1])  # imports
    start = time.process_time()
    drawn(tmp_path, rows, outcomes)
    assert time.process_time() - start < 5
