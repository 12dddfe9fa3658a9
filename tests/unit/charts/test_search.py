import time
from dataclasses import replace

import pytest
from PIL import Image

from slm_lab.charts.page import render_page
from slm_lab.charts.search import draw_experiment_graph, search_charts
from slm_lab.charts.search_summary import SearchSummary
from slm_lab.metrics.trial_metrics import TRIAL_METRICS
from slm_lab.metrics.trial_state import TABLE_TRIALS
from tests.unit.charts.page import domains, plots
from tests.unit.charts.trials import (
    BUDGET,
    VARIABLES,
    drawn,
    searched,
    trial,
    varied,
)

MIXED = ["finished", "stopped", "finished", "failed", "running"]
X = varied("agent.x", "uniform")
SEARCHES = {
    "no trials": SearchSummary("s", "S", VARIABLES, (), BUDGET),
    "no variables": searched((), [[]] * 6, range(6)),
    "nothing yet": drawn(3)._replace(
        trials=tuple(trial(i, None, "waiting") for i in range(3))
    ),
    "all failed": drawn(4, status="failed"),
    "one trial": drawn(1),
    "all the same": searched((X,), [[0.5]] * 6, [1.0] * 6),
    "one variable": drawn(12, 1),
    "all kinds of variables": drawn(30, 8, status=MIXED * 6),
    "not measured": SearchSummary(
        "s",
        "S",
        (X,),
        (trial(0, None), replace(trial(1, x=2), metrics={}, score=3.0)),
        BUDGET,
    ),
    "names to escape": searched(
        (varied("a.<b>&", "choice", ("</script>", "<i>")),),
        [["</script>"], ["<i>"]],
        [1.0, 2.0],
    ),
}


def page_of(experiment):
    """The traces of all graphs of the page."""
    return [trace for traces, _ in graphs_of(experiment) for trace in traces]


def graphs_of(experiment):
    """The traces and the layout of importances, parallel axes and dots."""
    return plots(render_page(search_charts(experiment).page, "plotly.js"))


def of_type(traces, *kinds):
    return [trace for trace in traces if trace["type"] in kinds]


def dots(traces):
    return [
        trace
        for trace in of_type(traces, "scatter", "scattergl")
        if trace["mode"] == "markers" and "text" in trace
    ]


@pytest.mark.medium
@pytest.mark.parametrize("what", SEARCHES)
def test_any_search_can_be_drawn(what, tmp_path):
    png, html = draw_experiment_graph(SEARCHES[what], tmp_path, "small")
    assert (png.name, html.name) == (
        "small_experiment_graph.png",
        "small_experiment_graph.html",
    )
    with Image.open(png) as picture:
        assert picture.width >= 900
    assert plots(html.read_bytes())
    assert len(list(tmp_path.parent.glob("plotly-*.min.js"))) == 1


def metrics_of(experiment):
    """The metric of each row of dots."""
    return [row[0].y.label for row in search_charts(experiment).dots.rows]


def test_there_is_a_row_for_every_metric_with_values_and_a_column_for_every_variable():
    shown = [
        name.replace("_", " ") for name in TRIAL_METRICS if name != "total_reward_ma"
    ]
    assert metrics_of(drawn(12, 4)) == shown
    last = search_charts(drawn(12, 4)).dots.rows[-1]
    names = ["lr", "gamma", "hid_layers", "minibatch_size"]
    assert [panel.x.label for panel in last] == names
    without = [replace(each, metrics={"strength": 1.0}) for each in drawn(12, 4).trials]
    assert metrics_of(drawn(12, 4)._replace(trials=tuple(without))) == ["strength"]


def test_colour_is_the_score_that_orders_the_trials():
    experiment = drawn(12)
    shading = search_charts(experiment).dots.shading
    assert shading.name == "score"
    scores = sorted(each.known_score for each in experiment.trials)
    assert shading.values.tolist() == scores
    bare = tuple(replace(each, metrics={}) for each in experiment.trials)
    without = experiment._replace(trials=bare)
    assert search_charts(without).dots.shading.name == "score"
    assert metrics_of(without) == ["score"]


def test_trials_that_spent_the_whole_budget_are_filled_and_others_hollow():
    traces = page_of(
        drawn(10, 1, status=["finished"] * 6 + ["stopped"] * 3 + ["failed"])
    )
    for trace in dots(traces):
        symbols = trace["marker"]["symbol"]
        assert (symbols.count("circle"), symbols.count("circle-open")) == (6, 3)


def test_a_trial_that_failed_is_counted_and_not_drawn():
    charts = search_charts(drawn(10, status=["failed"] * 2 + ["finished"] * 8))
    assert len(charts.dots.panels[0].dots.x) == 8
    assert "10 trials: 8 finished, 2 failed" in charts.head.subtitle


def test_every_axis_of_the_parallel_ones_holds_its_trials():
    traces = page_of(drawn(20, 8, status=["finished", "stopped"] * 10))
    (parallel,) = of_type(traces, "parcoords")
    labels = [each["label"] for each in parallel["dimensions"]]
    assert labels[-3:] == ["frames", "score", "strength"]
    assert len(labels) == 11
    for each in parallel["dimensions"]:
        low, high = each["range"]
        assert len(each["values"]) == 20
        assert all(low <= value <= high for value in each["values"])
        assert len(each.get("tickvals", ())) == len(each.get("ticktext", ()))
        if "tickvals" in each:  # a line outside of them would leave its axis
            assert {*each["range"]} <= {*each["tickvals"]}
    assert len(parallel["line"]["color"]) == 20


def test_where_all_spent_the_same_frames_there_is_no_axis_of_them():
    (parallel,) = of_type(page_of(drawn(20, 2)), "parcoords")
    assert [each["label"] for each in parallel["dimensions"]] == [
        "lr",
        "gamma",
        "score",
        "strength",
    ]


def test_the_page_has_a_bar_for_each_variable_the_most_important_first():
    (bars, *_), layout = graphs_of(drawn(30, 4))[0]
    assert len(bars["x"]) == 4
    assert bars["x"] == sorted(bars["x"], reverse=True)
    assert layout["yaxis"]["ticktext"][0] == "lr"
    # from the top down
    assert layout["yaxis"]["range"][0] > layout["yaxis"]["range"][1]
    assert bars["customdata"][0].startswith("lr: ")


def test_the_page_says_that_there_are_too_few_trials_for_importances():
    (bars, *_), _ = graphs_of(drawn(3, 2))[0]
    assert bars["x"] == [0, 0]
    assert bars["text"] == ["3 trials have a result to compare, it takes 5"] * 2


def test_the_page_says_how_stopped_trials_were_compared():
    note = "stopped early rank behind those that finished"
    stopped = search_charts(
        drawn(12, status=["finished", "stopped"] * 6)
    ).importance.notes
    assert note in " ".join(stopped)
    assert note not in " ".join(search_charts(drawn(12)).importance.notes)


def test_the_table_has_the_best_trials_with_their_points():
    experiment = drawn(30, 4)
    table = search_charts(experiment).best.table.text
    best = sorted(experiment.trials, key=lambda each: -each.score)
    assert [row[0] for row in table.rows] == [
        str(each.trial) for each in best[:TABLE_TRIALS]
    ]
    assert "hid_layers" in table.header
    page = render_page(search_charts(experiment).page, "p.js").decode()
    assert f">{best[0].trial}</td>" in page


def test_a_dot_tells_its_trial_point_and_score():
    experiment = searched((X,), [[0.25]], [7.5])
    (trace, *_) = dots(page_of(experiment))
    assert trace["text"] == ["trial 0, finished<br>score 7.5<br>x 0.25"]
    assert trace["hovertemplate"].startswith("%{text}<br>final return")


def test_a_search_of_many_trials_is_drawn_by_webgl():
    traces = page_of(drawn(500, 2))
    assert {trace["type"] for trace in dots(traces)} == {"scattergl"}


def test_zooming_into_a_panel_acts_on_its_row_and_column():
    traces, layout = graphs_of(drawn(20, 3))[-1]
    across, up = (
        {
            layout[f"{axis}{trace[axis][1:]}"].get("matches") or trace[axis]
            for trace in traces
        }
        for axis in ("xaxis", "yaxis")
    )
    assert (len(across), len(up)) == (3, len(metrics_of(drawn(20, 3))))


def test_panels_stand_apart_inside_the_page():
    places = domains(graphs_of(drawn(20, 8))[-1][1])
    for i, (left, right, bottom, top) in enumerate(places):
        assert 0 <= left < right <= 1
        assert -1e-9 <= bottom < top <= 1
        assert all(
            right <= a or b <= left or top <= c + 1e-9 or d <= bottom + 1e-9
            for a, b, c, d in places[:i]
        )


def test_nothing_from_a_spec_ends_the_page():
    charts = search_charts(SEARCHES["names to escape"])
    text = render_page(charts.page, "p.js").decode()
    assert text.count("</script>") == 1 + 3  # of plotly.js, and of each graph
    assert "<b>&" not in text.split("newPlot")[1]


@pytest.mark.medium
def test_fifty_trials_of_four_variables_are_drawn_at_once(tmp_path):
    experiment = drawn(50, 4)
    draw_experiment_graph(drawn(5), tmp_path, "first")  # imports
    start = time.process_time()
    draw_experiment_graph(experiment, tmp_path, "s")
    assert time.process_time() - start < 6
