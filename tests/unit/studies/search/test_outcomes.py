"""The graphs of a search, from the files of its trials."""

import pytest

from slm_lab.records.event_log import Began, EventLog, Proposed, StudyState
from slm_lab.studies.search import outcomes
from tests.support import parse, ppo
from tests.unit.records.runs import write_run


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """The rows of each trial, and the runs of its Sessions, as a search of these specs
    draws them.

    The spec of the search is that of the first trial; the last `waiting` have not
    begun.
    """
    calls = []
    monkeypatch.setattr(outcomes, "draw_experiment_graph", lambda *_: [])
    monkeypatch.setattr(
        outcomes, "draw_multi_trial_graphs", lambda **asked: calls.append(asked) or []
    )

    def draw(*specs, waiting=0, damages=lambda run: None):
        run = write_run(tmp_path, *specs)
        damages(run)
        log = EventLog(run.event_log_file)
        for trial in range(len(specs) + waiting):
            log.write(Proposed(trial, {}))
            if trial < len(specs):
                log.write(Began(trial))
        log.close()
        state = StudyState.from_log(run.event_log_file)
        outcomes.draw(parse(specs[0]), run, state, lambda: False)
        (asked,) = calls
        counts = {
            trial: [len(each) for each in some] for trial, some in asked["rows"].items()
        }
        return counts, asked["run_of"]

    return draw


@pytest.mark.parametrize(
    ("fixed", "key", "values", "sessions", "runs"),
    [
        ({}, "max_session", (1, 3), (1, 3), (None, None)),
        (
            {"max_session": 2},
            "distributed",
            ("actor_learner", False),
            (1, 2),
            (None, None),
        ),
        ({"distributed": "synced"}, "max_run", (1, 2), (1, 2), (None, [0, 1])),
    ],
)
def test_a_trial_is_drawn_with_the_rows_of_all_sessions_that_it_has(
    fixed, key, values, sessions, runs, drawn
):
    each = ({**fixed, key: value} for value in values)
    specs = (
        ppo(**{f"meta__{name}": value for name, value in meta.items()}) for meta in each
    )
    rows, run_of = drawn(*specs)
    assert rows == {trial: [20] * count for trial, count in enumerate(sessions)}
    assert run_of == dict(enumerate(runs))


def test_a_trial_that_has_not_begun_is_not_drawn(drawn):
    rows, _ = drawn(ppo(), ppo(), waiting=1)
    assert set(rows) == {0, 1}


def test_damaged_rows_of_one_trial_leave_the_others_drawn(drawn, caplog):
    def damages(run):
        run.session(0, 0).rows.write_text("frame,total_frame\n100,not a number\n")

    rows, _ = drawn(ppo(), ppo(), damages=damages)
    assert rows == {0: [], 1: [20]}
    assert "the graphs leave rows out" in caplog.text
    assert "t0_s0_session_df_train.csv" in caplog.text


def test_a_stop_leaves_only_the_table(tmp_path):
    spec = ppo(search={"agent.algorithm.gamma__uniform": [0.9, 0.99]})
    run = write_run(tmp_path, spec)
    (table,) = outcomes.draw(
        parse(spec), run, StudyState.from_log(run.event_log_file), lambda: True
    )
    assert table.name.endswith("_experiment_df.csv")
    assert table.is_file()
    assert not [*run.root.rglob("*_graph.*")]
