import numpy as np
import pytest

from slm_lab.charts.curves import decimate
from slm_lab.charts.session import draw_session_graphs, session_overview
from slm_lab.metrics.lines import Line
from slm_lab.metrics.reader import NO_ROWS, read_rows
from slm_lab.metrics.row import EVAL_COLUMNS
from tests.unit.charts.session import write_evaluations, write_session

FILES = ("p_t0_s0_session_graph_overview.png", "p_t0_s0_session_graph_overview.html")


def overview(csv, evaluations=NO_ROWS):
    return session_overview(read_rows(csv), evaluations, "title")


def draw(folder, csv, evaluations=NO_ROWS):
    return draw_session_graphs(
        folder / "graph", read_rows(csv), evaluations, "p_t0_s0", "p", folder
    )


def test_a_session_has_one_picture_and_one_page(tmp_path):
    csv = write_session(tmp_path / "s.csv", 30)
    paths = draw(tmp_path, csv)
    assert paths == [tmp_path / "graph" / name for name in FILES]
    assert set((tmp_path / "graph").iterdir()) == set(paths)
    assert len(list(tmp_path.glob("plotly-*.min.js"))) == 1


def test_returns_share_a_panel_and_every_column_with_values_has_its_own_in_their_order(
    tmp_path,
):
    csv = write_session(tmp_path / "s.csv", 30, extra=("clip_eps", "approx_kl"))
    rows = read_rows(csv)
    figure = overview(csv)
    returns, *columns = figure.panels
    row, average = returns.curves
    assert row.mean.tolist() == rows["mean_return"].tolist()
    of_each = rows["mean_return"]  # the mean of one episode, and twenty are the fewest
    last_twenty = [of_each[max(0, at - 19) : at + 1].mean() for at in range(30)]
    np.testing.assert_allclose(average.mean, last_twenty)
    assert (row.label, average.label) == ("", "smoothed")
    assert [panel.title for panel in columns] == ["loss"]
    assert figure.subtitle == "30 rows · constant: clipping range ε 0.200"
    (loss,) = columns[0].curves
    assert loss.mean.tolist() == rows["loss"].tolist()
    assert loss.x.tolist() == rows["frame"].tolist()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_session_that_has_hardly_begun_is_drawn(tmp_path, rows):
    csv = write_session(tmp_path / "s.csv", rows, learns=False)
    (panel,) = overview(csv).panels
    assert panel.is_empty == (rows == 0)
    paths = draw(tmp_path, csv)
    assert ("no values yet" in paths[1].read_text()) == (rows == 0)


def test_a_long_line_is_thinned_to_its_ends_and_points_between():
    x = np.arange(10_001.0)
    thin = decimate(Line(x, x**2), 101)
    assert (thin.x == np.arange(0, 10_001, 100)).all()
    assert (thin.y == thin.x**2).all()
    short = Line(x[:50], x[:50])
    assert decimate(short, 101) is short


@pytest.mark.parametrize("rows", [1, 5])
def test_evaluations_have_a_panel_with_the_spread_of_their_episodes(tmp_path, rows):
    csv = write_session(tmp_path / "s.csv", 10)
    evaluations = read_rows(write_evaluations(tmp_path / "e.csv", rows, spread=2.5))
    panel = overview(csv, evaluations).panels[1]
    (curve,) = panel.curves
    assert panel.title == "evaluation return ± 1 std"
    assert curve.mean.tolist() == list(range(1, rows + 1))
    assert (curve.band.high - curve.mean).tolist() == [2.5] * rows
    page = draw(tmp_path, csv, evaluations)[1]
    assert "evaluation return" in page.read_text()


def test_without_evaluation_rows_there_is_no_panel_for_them(tmp_path):
    csv = write_session(tmp_path / "s.csv", 10)
    empty = read_rows(write_evaluations(tmp_path / "e.csv", 0))
    assert empty.columns == EVAL_COLUMNS
    assert len(overview(csv, empty).panels) == len(overview(csv).panels)
    assert (
        draw(tmp_path, csv, empty)[1].read_bytes()
        == draw(tmp_path, csv)[1].read_bytes()
    )


def test_a_long_run_of_evaluations_keeps_mean_and_spread_together(tmp_path):
    csv = write_session(tmp_path / "s.csv", 1)
    evaluations = read_rows(write_evaluations(tmp_path / "e.csv", 2500))
    (curve,) = overview(csv, evaluations).panels[1].curves
    assert len(curve.x) == len(curve.mean) == len(curve.band.low) == 1000
