import numpy as np
import pytest

from slm_lab.analysis.grid import Line
from slm_lab.analysis.load import load_session_df
from slm_lab.analysis.session_graph import (
    decimate,
    draw_session_eval_graph,
    draw_session_graphs,
    session_eval_figure,
)

from .session import write_evaluations, write_session

CLOCKS = ("frames", "total_frames", "wall_t")
RETURNS = ("mean_returns", "mean_returns_ma")


def names(paths):
    return {path.name for path in paths}


def expected(pairs):
    return {f"p_t0_s0_session_graph_{y}_vs_{x}{end}" for y, x in pairs for end in (".png", ".html")}


def test_returns_are_drawn_against_each_clock_and_reported_columns_against_frames(tmp_path):
    csv = write_session(tmp_path / "s.csv", 30, extra=("clip_eps", "approx_kl"))
    paths = draw_session_graphs(tmp_path / "graph", csv, "p_t0_s0", "p · Env-v1")
    pairs = [(y, x) for y in RETURNS for x in CLOCKS]
    assert names(paths) == expected([*pairs, ("loss", "frames"), ("clip_eps", "frames")])
    assert all(path.parent == tmp_path / "graph" and path.stat().st_size for path in paths)
    assert (tmp_path / "plotly.min.js").exists()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_session_that_has_hardly_begun_has_its_return_graphs(tmp_path, rows):
    csv = write_session(tmp_path / "s.csv", rows, learns=False)
    paths = draw_session_graphs(tmp_path / "graph", csv, "p_t0_s0", "p")
    assert names(paths) == expected([(y, x) for y in RETURNS for x in CLOCKS])


def test_a_long_line_is_thinned_to_its_ends_and_points_between():
    x = np.arange(10_001.0)
    thin = decimate(Line(x, x**2), 101)
    assert (thin.x == np.arange(0, 10_001, 100)).all()
    assert (thin.y == thin.x**2).all()
    short = Line(x[:50], x[:50])
    assert decimate(short, 101) is short


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_evaluations_are_drawn_with_the_spread_of_their_episodes(tmp_path, rows):
    csv = write_evaluations(tmp_path / "s.csv", rows, spread=2.5)
    paths = draw_session_eval_graph(tmp_path / "graph", csv, "p_t0_s0", "p · Env-v1")
    assert names(paths) == expected([("eval_mean_returns", "frames")])
    figure = session_eval_figure(load_session_df(csv), "title", "")
    if not rows:
        assert (figure.curves, figure.note) == ((), "no values yet")
        return
    (curve,) = figure.curves
    assert curve.mean.tolist() == list(range(1, rows + 1))
    assert curve.std.tolist() == [2.5] * rows


def test_a_long_run_of_evaluations_keeps_mean_and_spread_together(tmp_path):
    csv = write_evaluations(tmp_path / "s.csv", 2500)
    (curve,) = session_eval_figure(load_session_df(csv), "title", "").curves
    assert len(curve.x) == len(curve.mean) == len(curve.std) == 2000
