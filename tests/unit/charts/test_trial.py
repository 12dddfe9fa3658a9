import numpy as np
import pytest

from slm_lab.charts.axis import (
    RETURNS,
    cpu_clock,
    frames,
    learner_axis,
    line,
    wall_clock,
)
from slm_lab.charts.chart import MAX_POINTS
from slm_lab.charts.trial import (
    count_with_rows,
    draw_trial_graphs,
    trial_chart,
)
from slm_lab.metrics.lines import Line, common_grid, mean_lines, spread
from slm_lab.metrics.reader import NO_ROWS, Rows, read_rows
from tests.unit.charts.page import curves_of
from tests.unit.charts.session import write_evaluations, write_session

MAIN = ["mean_returns_vs_frames", "mean_returns_ma_vs_frames"]
CLOCKS = ["mean_returns_vs_total_frames", "mean_returns_ma_vs_total_frames"]
CLOCKS += ["mean_returns_vs_wall_t", "mean_returns_ma_vs_wall_t"]


def figure_of(*lines):
    return trial_chart(lines, frames(), RETURNS[0], "title", "subtitle")


def trained(folder, count, **options):
    csv = folder / "trained.csv"
    csv.unlink(missing_ok=True)
    return read_rows(write_session(csv, count, **options))


def evaluated(folder, count):
    csv = folder / "evaluated.csv"
    csv.unlink(missing_ok=True)
    return read_rows(write_evaluations(csv, count))


def flat(start, stop, y, step=1.0):
    x = np.arange(start, stop + step / 2, step)
    return Line(x, np.full_like(x, y))


def by_style(figure, style):
    return [curve for curve in curves_of(figure) if curve.style == style]


def expected(tmp_path, graphs):
    ends = (".png", ".html")
    return [
        tmp_path / f"p_t0_trial_graph_{graph}{end}" for end in ends for graph in graphs
    ]


def test_all_graphs_of_a_trial_are_drawn_into_the_run_folder(tmp_path):
    rows = [trained(tmp_path, 30, seed=i) for i in range(3)]
    paths = draw_trial_graphs(tmp_path, rows, [], "p_t0", "p · Env-v1")
    assert paths == expected(tmp_path, [*MAIN, *CLOCKS, "loss_vs_frames"])
    assert all(path.stat().st_size for path in paths)


def test_each_key_of_an_info_has_a_graph_where_a_session_has_values(tmp_path):
    rows = trained(tmp_path, 5)
    columns = (*rows.columns, "info_a/b", "info_none")
    values = np.concatenate([rows.values, np.ones((1, 5)), np.full((1, 5), np.nan)])
    paths = draw_trial_graphs(
        tmp_path, [NO_ROWS, Rows(columns, values)], [], "p_t0", "title"
    )
    assert paths == expected(
        tmp_path, [*MAIN, *CLOCKS, "loss_vs_frames", "info_a.b_vs_frames"]
    )


def test_while_training_only_the_two_main_graphs_are_drawn(tmp_path):
    rows = [trained(tmp_path, 5), NO_ROWS]
    paths = draw_trial_graphs(tmp_path, rows, [], "p_t0", "p · Env-v1", which="live")
    assert paths == expected(tmp_path, MAIN)
    assert "1 of 2 Sessions" in paths[-1].read_text()


def test_evaluations_have_their_own_graph(tmp_path):
    rows = [evaluated(tmp_path, count) for count in (3, 5, 0)]
    paths = draw_trial_graphs(tmp_path, [], rows, "p_t0", "p · Env-v1", which="live")
    assert paths == expected(tmp_path, [*MAIN, "eval_mean_returns_vs_frames"])
    assert "2 of 3 Sessions" in paths[-1].read_text()


def test_without_evaluations_there_is_no_graph_of_them(tmp_path):
    rows = [evaluated(tmp_path, 0), NO_ROWS]
    paths = draw_trial_graphs(tmp_path, [], rows, "p_t0", "p", which="live")
    assert paths == expected(tmp_path, MAIN)


@pytest.mark.parametrize("counts", [[], [0], [0, 0], [1, 0], [1, 30]])
def test_a_trial_that_has_hardly_begun_can_be_drawn(tmp_path, counts):
    rows = [trained(tmp_path, count, learns=False) for count in counts]
    paths = draw_trial_graphs(tmp_path, rows, [], "p_t0", "p")
    assert paths == expected(tmp_path, [*MAIN, *CLOCKS])


def test_sessions_with_the_same_rows_have_one_mean_with_a_band():
    figure = figure_of(flat(0, 10, 1.0), flat(0, 10, 3.0))
    (mean,) = by_style(figure, "solid")
    assert mean.label == "mean ± 1 std of 2 Sessions"
    assert (mean.mean == 2).all()
    assert (mean.band.low == 1).all()
    assert (mean.band.high == 3).all()
    assert by_style(figure, "dashed") == []
    assert [curve.label for curve in by_style(figure, "faint")] == ["each Session", ""]


def test_the_mean_is_dashed_and_has_no_band_where_only_some_sessions_have_data():
    figure = figure_of(flat(0, 10, 1.0), flat(0, 6, 3.0), flat(0, 4, 5.0))
    (full,), (partly,) = by_style(figure, "solid"), by_style(figure, "dashed")
    assert full.x[np.isfinite(full.mean)].tolist() == [0, 1, 2, 3, 4]
    assert partly.x[np.isfinite(partly.mean)].tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert partly.mean[4:].tolist() == [3, 2, 2, 1, 1, 1, 1]
    assert partly.band is None
    assert partly.label == "mean of 1–2 Sessions"


def test_short_ragged_ends_are_left_out():
    figure = figure_of(flat(0, 100, 1.0), flat(1, 101, 3.0))
    assert by_style(figure, "dashed") == []
    (mean,) = by_style(figure, "solid")
    assert (mean.x[0], mean.x[-1]) == (1, 100)


def test_one_session_is_drawn_as_it_is():
    (curve,) = curves_of(figure_of(flat(0, 10, 1.0), Line(np.empty(0), np.empty(0))))
    assert (curve.label, curve.band, curve.style) == ("", None, "solid")


def test_many_sessions_are_not_drawn_one_by_one():
    assert by_style(figure_of(*[flat(0, 3, float(i)) for i in range(9)]), "faint") == []


def test_no_curve_has_more_points_than_a_screen_shows():
    figure = figure_of(flat(0, 9000, 1.0), flat(0.5, 9000.5, 3.0))
    assert all(curve.x.size <= MAX_POINTS for curve in curves_of(figure))
    (mean,) = by_style(figure, "solid")
    np.testing.assert_allclose(mean.mean, 2.0)


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (300, "training time (s)"),
        (301, "training time (min)"),
        (7201, "training time (h)"),
    ],
)
def test_the_wall_clock_has_a_unit_that_suits_its_length(seconds, label):
    assert wall_clock(seconds).label == label


def test_the_cpu_clock_counts_all_processes_in_the_unit_of_the_wall_clock():
    axis = cpu_clock(600)
    assert (axis.column, axis.file) == ("cpu_t", "cpu_t")
    assert axis.label == "CPU time of all processes (min)"
    assert axis.unit_size == wall_clock(600).unit_size == 60


@pytest.mark.parametrize(
    ("with_rows", "planned", "text"),
    [
        (4, 4, "4 Sessions"),
        (1, 1, "1 Session"),
        (2, 4, "2 of 4 Sessions"),
        (0, 1, "0 of 1 Session"),
    ],
)
def test_the_subtitle_counts_sessions(with_rows, planned, text):
    assert count_with_rows(with_rows, planned) == text


def test_where_a_training_was_repeated_the_lines_are_the_means_of_the_runs(tmp_path):
    """Two runs of two workers: the band is that of two lines, whatever lies between
    workers."""
    rows = [trained(tmp_path, 30, seed=i) for i in range(4)]
    draw_trial_graphs(
        tmp_path, rows, [], "p_t0", "p", which="live", run_of=[0, 0, 1, 1]
    )
    page = (tmp_path / "p_t0_trial_graph_mean_returns_vs_frames.html").read_text()
    assert "4 Sessions, workers of 2 runs" in page
    assert "of 2 runs" in page
    lines = [line(each, frames(), RETURNS[0]) for each in rows]
    first, second = mean_lines(lines, [0, 0, 1, 1])
    figure = trial_chart([first, second], frames(), RETURNS[0], "t", "s", "run")
    (mean,) = (curve for curve in curves_of(figure) if curve.style == "solid")
    np.testing.assert_allclose(mean.mean, spread(lines, common_grid(lines)).mean)


def test_runs_in_which_one_process_writes_for_all_are_counted_as_runs(tmp_path):
    rows = [trained(tmp_path, 30, seed=i) for i in range(2)]
    file = tmp_path / "p_t0_trial_graph_mean_returns_vs_frames.html"
    draw_trial_graphs(tmp_path, rows, [], "p_t0", "p", which="live", run_of=[0, 1])
    assert "2 runs" in file.read_text()
    assert "Sessions" not in file.read_text()
    draw_trial_graphs(
        tmp_path, [rows[0], NO_ROWS], [], "p_t0", "p", which="live", run_of=[0, 1]
    )
    assert "1 of 2 runs" in file.read_text()


@pytest.mark.medium
def test_actor_statistics_of_a_learner_are_drawn(tmp_path):
    columns = (
        "eps",
        "policy_lag",
        "policy_lag_max",
        "actor_wait_share",
        "learner_wait_share",
    )
    csv = tmp_path / "s.csv"
    lines = [
        ",".join(
            [
                "frame",
                "total_frame",
                "wall_t",
                "total_reward",
                "total_reward_ma",
                *columns,
            ]
        )
    ]
    lines += [",".join(str(n * row) for n in range(1, 11)) for row in range(1, 4)]
    csv.write_text("\n".join([*lines, ""]))
    paths = draw_trial_graphs(tmp_path, [read_rows(csv)], [], "p_t0", "p")
    assert paths == expected(
        tmp_path, [*MAIN, *CLOCKS, *(f"{name}_vs_frames" for name in columns)]
    )
    words = {name: learner_axis(name).label for name in columns}
    assert words["eps"] == "EPS (environments/s)"
    assert words["policy_lag_max"] == "policy lag, most (updates)"
    assert words["actor_wait_share"] == "wait share of actors"


def test_the_mean_of_a_run_goes_as_far_as_more_than_half_of_its_workers():
    one, other, short = flat(0, 10, 1.0), flat(0, 10, 3.0), flat(0, 4, 8.0)
    (mean,) = mean_lines([one, other, short], [0, 0, 0])
    assert (mean.x[-1], mean.y[0], mean.y[-1]) == (10, 4.0, 2.0)
    (cut,) = mean_lines([one, short], [7, 7])
    assert cut.x[-1] == 4
    assert len(mean_lines([one, Line(np.empty(0), np.empty(0))], [0, 1])) == 1
