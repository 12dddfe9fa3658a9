import csv
import io
import json
import traceback
from dataclasses import replace

import pandas as pd
import pytest

from slm_lab.charts.search_summary import (
    SearchSummary,
    experiment_table,
)
from slm_lab.core.text import error_summary
from slm_lab.core.values import number_text, short_names, value_text
from slm_lab.metrics.trial_metrics import TRIAL_METRICS
from slm_lab.metrics.trial_state import ranked
from tests.unit.charts.trials import BUDGET, drawn, searched, trial, varied


def written(experiment):
    """The lines of the CSV of a search."""
    return list(
        csv.DictReader(io.StringIO(experiment_table(experiment).to_csv(index=False)))
    )


def test_finished_trials_come_first_then_those_that_came_farthest():
    outcomes = [
        trial(0, 9.0, "stopped", frame=5000),
        trial(1, 1.0),
        trial(2, 9.9, "stopped", frame=100),
        trial(3, 3.0),
        trial(4, 8.0, "stopped", frame=9000),
        trial(5, None, "failed"),
        trial(6, 99.0, "running"),
        trial(7, 9.5, "stopped", frame=5000),
        trial(8, None, "waiting"),
    ]
    assert [each.trial for each in ranked(outcomes)] == [3, 1, 4, 7, 0, 2, 6, 5, 8]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_trial_without_a_finite_score_is_never_the_best(score):
    outcomes = [replace(trial(0), score=score), trial(1, -1e9)]
    assert [each.trial for each in ranked(outcomes)] == [1, 0]


def test_a_failed_trial_is_last_whatever_it_had_reached():
    outcomes = [
        trial(0, 1e9, "failed"),
        trial(1, 0.0, "stopped", frame=1),
        trial(2, None),
    ]
    assert [each.trial for each in ranked(outcomes)] == [1, 0, 2]


def test_equals_keep_the_order_of_trials():
    assert [each.trial for each in ranked([trial(2), trial(0), trial(1)])] == [0, 1, 2]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["agent.net.optim_spec.lr"], ["lr"]),
        (["agent.net.lr", "agent.algorithm.gamma"], ["lr", "gamma"]),
        (["a.actor.lr", "a.critic.lr", "a.gamma"], ["actor.lr", "critic.lr", "gamma"]),
        (["a.x.spec.lr", "a.y.spec.lr"], ["x.spec.lr", "y.spec.lr"]),
        (["agent.net.optim_spec", "agent.net.optim_spec.lr"], ["optim_spec", "lr"]),
        (["a.entropy.start_val", "b.lr"], ["entropy.start_val", "lr"]),
        (["lr", "agent.lr"], ["lr", "agent.lr"]),
        (["name"], ["name"]),
        (["agent.net.hid_layers.0"], ["hid_layers.0"]),
        (["agent.net.hid_layers.0", "a.lr"], ["hid_layers.0", "lr"]),
        (["a.hid_layers.0", "a.hid_layers.1"], ["hid_layers.0", "hid_layers.1"]),
        (["agent.net.conv_hid_layers.0.1"], ["conv_hid_layers.0.1"]),
        (["a.entropy.list.0.name"], ["list.0.name"]),
        ([], []),
    ],
)
def test_a_short_name_is_the_shortest_end_that_tells_variables_apart(paths, names):
    assert short_names(paths) == dict(zip(paths, names, strict=True))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00123456, "0.00123"),
        (3e-5, "3e−5"),
        (1.26e-7, "1.26e−7"),
        (12.5, "12.5"),
        (1234.4, "1234"),
        (2.5e6, "2.5e6"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (1e-4, "0.0001"),
        (128, "128"),
        (True, "true"),
        (None, "null"),
        ("relu", "relu"),
        ([64, 64], "64, 64"),
        ([[32, 8, 4], [64]], "[32, 8, 4], [64]"),
        ({"name": "Adam", "lr": 0.01}, "Adam, lr 0.01"),
        ({"start": 1}, "start 1"),
        (float("inf"), "inf"),
        ([], ""),
    ],
)
def test_a_value_is_shown_in_a_few_letters(value, text):
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "count", "text"),
    [
        (999.7, 3, "1000"),
        (-999.7, 3, "−1000"),
        (999.4, 3, "999"),
        (9999.6, 4, "10000"),
        (9999.4, 4, "9999"),
        (99.96, 3, "100"),
        (999_999.6, 3, "1e6"),
        (12.5, 3, "12.5"),
        (1.2e6, 3, "1.2e6"),
        (None, 3, "–"),
    ],
)
def test_a_number_that_rounds_up_to_one_more_digit_is_written_in_full(
    value, count, text
):
    assert number_text(value, count) == text


def test_a_long_value_is_cut():
    assert value_text("a" * 24) == "a" * 24
    assert value_text("a" * 25) == "a" * 23 + "…"


def test_the_table_has_a_line_per_trial_the_best_first():
    experiment = drawn(12, status=["finished"] * 6 + ["stopped"] * 6)
    lines = written(experiment)
    assert [int(line["trial"]) for line in lines] == [
        each.trial for each in ranked(experiment.trials)
    ]
    paths = [variable.path for variable in experiment.variables]
    fixed = ["trial", "status", "score", "frame", "wall_t", "restarts"]
    assert list(lines[0]) == [*fixed, *paths, *TRIAL_METRICS, "error"]


def test_numbers_read_back_to_the_same_bits():
    experiment = drawn(8)
    by_trial = {each.trial: each for each in experiment.trials}
    for line in written(experiment):
        outcome = by_trial[int(line["trial"])]
        assert float(line["score"]) == outcome.score
        assert (
            float(line["agent.net.optim_spec.lr"])
            == outcome.params["agent.net.optim_spec.lr"]
        )
        assert (
            json.loads(line["agent.net.hid_layers"])
            == outcome.params["agent.net.hid_layers"]
        )
        assert float(line["consistency"]) == outcome.metrics["consistency"]


def test_a_failed_trial_shows_its_status_and_error_and_no_result():
    failed = trial(
        3, 7.0, "failed", error="ValueError: the loss is nan\n  at frame 12", lr=0.1
    )
    experiment = SearchSummary(
        "x", "X", (varied("lr", "uniform"),), (failed, trial(4, lr=1)), BUDGET
    )
    best, last = written(experiment)
    assert (last["trial"], last["status"], last["lr"]) == ("3", "failed", "0.1")
    assert last["error"] == "ValueError: the loss is nan"
    assert not any(last[name] for name in ("score", *TRIAL_METRICS))
    assert best["error"] == ""
    assert "nan" not in best.values()


def raised(error):
    """The text of an exception as a process of the lab reports it."""
    try:
        raise error
    except Exception:
        return traceback.format_exc()


def caused():
    """The text of an exception with a cause, and notes as those of an environment that
    failed."""
    try:
        try:
            raise KeyError("obs")
        except KeyError as error:
            failed = ZeroDivisionError("the pole broke")
            failed.add_note("in step() of environment 1 of 4: with action 1")
            failed.add_note(f"the worker's own traceback:\n{raised(failed)}")
            raise failed from error
    except ZeroDivisionError:
        return traceback.format_exc()


NON_FINITE = (
    "the loss is nan at frame 96; batch:\n  obs  min -1 mean 0 max 1\nthe state is in "
    "x.pt"
)
DUMB = 'Traceback (most recent call last):\n  File "x.py", line 1, in f'


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            raised(ValueError("Expected parameter loc")),
            "ValueError: Expected parameter loc",
        ),
        (raised(ValueError("first\n  second\nthird: x")), "ValueError: first"),
        (raised(ValueError()), "ValueError"),
        (
            raised(json.JSONDecodeError("bad", "x", 0)),
            "json.decoder.JSONDecodeError: bad: line 1 column 1 (char 0)",
        ),
        (caused(), "ZeroDivisionError: the pole broke"),
        (
            "concurrent.futures.process._RemoteTraceback: "
            f'\n"""\n{raised(OSError("full"))}"""',
            "OSError: full",
        ),
        (NON_FINITE, "the loss is nan at frame 96; batch:"),
        (f"the node was lost\n{raised(OSError('full'))}", "the node was lost"),
        (DUMB, "Traceback (most recent call last):"),
        ("\nended early\n", "ended early"),
        ("", ""),
    ],
)
def test_a_headline_is_the_line_that_says_what_happened(error, line):
    assert error_summary(error) == line
    assert error_summary(f"Session 12: {error}") == f"Session 12: {line}".strip()


def test_the_table_has_one_line_for_an_exception():
    failed = trial(0, None, "failed", error=f"Session 0: {caused()}")
    (line,) = written(SearchSummary("x", "X", (), (failed,), BUDGET))
    assert line["error"] == "Session 0: ZeroDivisionError: the pole broke"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), None])
def test_no_cell_holds_a_number_that_is_none(number):
    outcome = replace(trial(0), score=number, metrics={"strength": number})
    (line,) = written(SearchSummary("x", "X", (), (outcome,), BUDGET))
    assert line["score"] == line["strength"] == ""


def test_a_trial_that_has_not_begun_has_empty_cells():
    waiting = replace(trial(0, None, "waiting", frame=0), params={})
    (line,) = written(
        SearchSummary("x", "X", (varied("lr", "uniform"),), (waiting,), 9)
    )
    assert line["lr"] == line["score"] == ""


def test_pandas_reads_the_table_as_numbers():
    experiment = searched((varied("lr", "uniform"),), [[0.1], [0.2]], [1.0, 2.0])
    table = pd.read_csv(io.StringIO(experiment_table(experiment).to_csv(index=False)))
    assert table["lr"].tolist() == [0.2, 0.1]
    assert table["score"].dtype == float


def test_a_search_without_trials_has_a_header():
    table = experiment_table(
        SearchSummary("x", "X", (varied("lr", "uniform"),), (), BUDGET)
    )
    assert table.to_csv(index=False).startswith(
        "trial,status,score,frame,wall_t,restarts,lr,"
    )
    assert not len(table)
