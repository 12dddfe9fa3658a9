import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from slm_lab.analysis.figure.html import render_html
from slm_lab.analysis.metrics import TRIAL_METRICS
from slm_lab.analysis.search.graph import draw_experiment_graph, experiment_figure, page
from slm_lab.analysis.search.search_summary import SearchSummary
from slm_lab.analysis.search.trial_state import TABLE_TRIALS
from tests.unit.analysis.page import domains, plot
from tests.unit.analysis.search.trials import (
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
    return plot(render_html(page(experiment_figure(experiment)), "plotly.js"))


def of_type(traces, *kinds):
    return [trace for trace in traces if trace["type"] in kinds]


def dots(traces):
    return [
        trace
        for trace in of_type(traces, "scatter", "scattergl")
        if trace["mode"] == "markers"
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
    plot(html.read_bytes())
    assert len(list(tmp_path.parent.glob("plotly-*.min.js"))) == 1


def test_there_is_a_row_for_every_metric_with_values_and_a_column_for_every_variable():
    figure = experiment_figure(drawn(12, 4))
    shown = [
        name.replace("_", " ") for name in TRIAL_METRICS if name != "total_reward_ma"
    ]
    assert [axis.scale.label for axis in figure.metrics] == shown
    assert [axis.scale.label for axis in figure.variables] == [
        "lr",
        "gamma",
        "hid_layers",
        "minibatch_size",
    ]
    without = [replace(each, metrics={"strength": 1.0}) for each in drawn(12, 4).trials]
    figure = experiment_figure(drawn(12, 4)._replace(trials=tuple(without)))
    assert [axis.scale.label for axis in figure.metrics] == ["strength"]


def test_colour_is_the_score_that_orders_the_trials():
    experiment = drawn(12)
    figure = experiment_figure(experiment)
    assert figure.shading.name == "score"
    scores = [each.known_score for each in figure.trials]
    assert np.argsort(figure.shading.values).tolist() == np.argsort(scores).tolist()
    bare = tuple(replace(each, metrics={}) for each in experiment.trials)
    figure = experiment_figure(experiment._replace(trials=bare))
    assert figure.shading.name == "score"
    assert [axis.scale.label for axis in figure.metrics] == ["score"]


def test_trials_that_spent_the_whole_budget_are_filled_and_others_hollow():
    traces, _ = page_of(
        drawn(10, 1, status=["finished"] * 6 + ["stopped"] * 3 + ["failed"])
    )
    for trace in dots(traces):
        symbols = trace["marker"]["symbol"]
        assert (symbols.count("circle"), symbols.count("circle-open")) == (6, 3)


def test_a_trial_that_failed_is_counted_and_not_drawn():
    figure = experiment_figure(drawn(10, status=["failed"] * 2 + ["finished"] * 8))
    assert len(figure.trials) == 8
    assert "10 trials: 8 finished, 2 failed" in figure.subtitle


def test_every_axis_of_the_parallel_ones_holds_its_trials():
    traces, _ = page_of(drawn(20, 8, status=["finished", "stopped"] * 10))
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
    (parallel,) = of_type(page_of(drawn(20, 2))[0], "parcoords")
    assert [each["label"] for each in parallel["dimensions"]] == [
        "lr",
        "gamma",
        "score",
        "strength",
    ]


def test_the_page_has_a_bar_for_each_variable_the_most_important_first():
    traces, layout = page_of(drawn(30, 4))
    (bars,) = of_type(traces, "bar")
    assert len(bars["x"]) == 4
    assert bars["x"] == sorted(bars["x"], reverse=True)
    assert layout["yaxis"]["ticktext"][0] == "lr"
    # from the top down
    assert layout["yaxis"]["range"][0] > layout["yaxis"]["range"][1]


def test_the_page_says_that_there_are_too_few_trials_for_importances():
    traces, _ = page_of(drawn(3, 2))
    (bars,) = of_type(traces, "bar")
    assert bars["x"] == [0, 0]
    texts = [
        text
        for trace in traces
        if trace.get("mode") == "text"
        for text in trace["text"]
    ]
    assert texts == ["  3 trials have a result to compare, it takes 5"] * 2


def test_the_page_says_how_stopped_trials_were_compared():
    note = "stopped early rank behind those that finished"
    stopped = experiment_figure(drawn(12, status=["finished", "stopped"] * 6)).notes
    assert note in " ".join(stopped)
    assert note not in " ".join(experiment_figure(drawn(12)).notes)


def test_the_table_has_the_best_trials_with_their_points():
    experiment = drawn(30, 4)
    (table,) = of_type(page_of(experiment)[0], "table")
    best = sorted(experiment.trials, key=lambda each: -each.score)
    assert table["cells"]["values"][0] == [
        str(each.trial) for each in best[:TABLE_TRIALS]
    ]
    assert "<b>hid_layers</b>" in table["header"]["values"]


def test_a_dot_tells_its_trial_point_and_score():
    experiment = searched((X,), [[0.25]], [7.5])
    (trace, *_) = dots(page_of(experiment)[0])
    assert trace["text"] == ["trial 0, finished<br>score 7.5<br>x 0.25"]
    assert trace["hovertemplate"].startswith("%{text}<br>final return")


def test_a_search_of_many_trials_is_drawn_by_webgl():
    traces, _ = page_of(drawn(500, 2))
    assert {trace["type"] for trace in dots(traces)} == {"scattergl"}


def test_zooming_into_a_panel_acts_on_its_row_and_column():
    traces, layout = page_of(drawn(20, 3))
    across, up = (
        {
            (layout[key].get("matches") or trace[axis])
            for trace in dots(traces)
            for key in [f"{axis}{trace[axis][1:]}"]
        }
        for axis in ("xaxis", "yaxis")
    )
    assert (len(across), len(up)) == (3, len(experiment_figure(drawn(20, 3)).metrics))


def test_panels_stand_apart_inside_the_page():
    places = domains(page_of(drawn(20, 8))[1])
    for i, (left, right, bottom, top) in enumerate(places):
        assert 0 <= left < right <= 1
        assert 0 <= bottom < top <= 1
        assert all(
            right <= a or b <= left or top <= c or d <= bottom
            for a, b, c, d in places[:i]
        )


def test_nothing_from_a_spec_ends_the_page():
    figure = experiment_figure(SEARCHES["names to escape"])
    text = render_html(page(figure), "p.js").decode()
    assert text.count("</script>") == 3
    assert "<b>&" not in text.split("newPlot")[1]


@pytest.mark.medium
def test_fifty_trials_of_four_variables_are_drawn_at_once(tmp_path):
    experiment = drawn(50, 4)
    draw_experiment_graph(drawn(5), tmp_path, "first")  # imports
    start = time.process_time()
    draw_experiment_graph(experiment, tmp_path, "s")
    assert time.process_time() - start < 6
