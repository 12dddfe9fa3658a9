import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError, LabError
from slm_lab.metrics.row import COLUMNS, EVAL_COLUMNS
from slm_lab.metrics.tracker import EvaluationTracker

BUDGET = 1_000


def row(tracker, frame, *returns):
    clocks = {
        "total_frame": 2 * frame,
        "wall_t": frame / 100,
        "epi": 3,
        "opt_step": frame // 10,
    }
    lengths = np.arange(1, len(returns) + 1)
    info = np.empty((len(returns), 0))
    return tracker.row(np.array(returns), lengths, info, frame=frame, **clocks)


def test_every_column_of_an_evaluation_is_documented():
    assert set(EVAL_COLUMNS) <= set(COLUMNS)


def test_a_row_describes_the_episodes_at_the_clocks_of_the_training():
    found = row(EvaluationTracker(100, BUDGET), 100, 1.0, 5.0, 9.0)
    assert dict(zip(found.columns, found.cells, strict=True)) == {
        "frame": 100,
        "total_frame": 200,
        "wall_t": 1.0,
        "epi": 3,
        "opt_step": 10,
        "total_reward": 5.0,
        "total_reward_ma": 5.0,
        "final_return": 5.0,
        "final_return_episodes": 3,
        "return_std": pytest.approx(np.sqrt(32 / 3)),
        "return_min": 1.0,
        "return_max": 9.0,
        "episode_length": 2.0,
    }


def test_one_episode_has_no_spread():
    assert row(EvaluationTracker(100, BUDGET), 100, 7.0)["return_std"] == 0.0


def test_the_best_evaluation_is_the_first_with_the_highest_mean():
    tracker = EvaluationTracker(100, BUDGET)
    improved = []
    for i, value in enumerate([-3.0, -5.0, -3.0, -1.0]):
        row(tracker, 100 * (i + 1), value)
        improved.append(tracker.improved)
    assert improved == [True, False, False, True]
    assert tracker.best_return == -1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_return_that_is_not_finite_is_refused_and_is_not_the_best(value):
    tracker = EvaluationTracker(100, BUDGET)
    with pytest.raises(LabError, match=r"environments \[0, 1\] .* must be finite"):
        row(tracker, 100, 1.0, value)
    row(tracker, 200, 2.0)
    assert (tracker.improved, tracker.best_return) == (True, 2.0)


def test_an_evaluation_is_due_once_per_multiple_of_the_frequency():
    tracker = EvaluationTracker(100, BUDGET)
    due = []
    for frame in range(0, 400, 24):
        if tracker.due(frame):
            row(tracker, frame, 1.0)
            due.append(frame)
    assert due == [120, 216, 312]


def test_rows_of_another_version_are_not_continued():
    state = EvaluationTracker(100, BUDGET).state_dict()
    state["columns"].pop()
    with pytest.raises(
        CheckpointError, match=r"columns .*; resume with .* env\.info_keys of"
    ):
        EvaluationTracker(100, BUDGET).load_state_dict(state)
