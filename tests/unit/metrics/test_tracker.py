import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError, LabError
from slm_lab.core.types import Column
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.metrics.tracker import TrainingTracker

BUDGET = 1_000_000


def finish(tracker, at=0, **returns):
    """finish(tracker, e0=5.0, e2=7.0): environments 0 and 2 finish episodes."""
    index = np.array([int(name[1:]) for name in returns])
    info = np.empty((len(index), 0))
    lengths = np.full(len(index), 10)
    tracker.track_episodes(
        env_index=index,
        episode_return=np.array(list(returns.values())),
        episode_length=lengths,
        info=info,
        total_frame=at,
    )


def row_at(tracker, frame, wall_t=None):
    wall_t = frame / 100 if wall_t is None else wall_t
    clocks = {"total_frame": 2 * frame, "wall_t": wall_t, "cpu_t": 0.9 * wall_t}
    return tracker.row(frame=frame, **clocks, opt_step=frame // 10)


def test_a_row_has_the_base_columns_then_the_extra_ones():
    tracker = TrainingTracker(
        2, 100, BUDGET, ["clip_eps", Column("novelty", "1", "how new")]
    )
    assert row_at(tracker, 100).columns == (*BASE_COLUMNS, "clip_eps", "novelty")


def test_a_row_carries_the_clocks_it_is_given():
    row = row_at(TrainingTracker(2, 100, BUDGET), 100)
    assert (row["frame"], row["total_frame"], row["wall_t"], row["opt_step"]) == (
        100,
        200,
        1.0,
        10,
    )


def test_total_reward_is_empty_before_the_first_episode_ends():
    row = row_at(TrainingTracker(2, 100, BUDGET), 100)
    assert (row["total_reward"], row["total_reward_ma"], row["epi"]) == (None, None, 0)


def test_total_reward_is_the_mean_over_environments_that_have_finished_an_episode():
    tracker = TrainingTracker(3, 100, BUDGET)
    finish(tracker, e0=10.0, e2=30.0)
    assert row_at(tracker, 100)["total_reward"] == 20.0


def test_total_reward_keeps_an_environments_last_return_until_the_next():
    tracker = TrainingTracker(2, 100, BUDGET)
    finish(tracker, e0=10.0, e1=20.0)
    finish(tracker, e0=40.0)
    row = row_at(tracker, 100)
    assert (row["total_reward"], row["epi"]) == (30.0, 3)
    assert row_at(tracker, 200)["total_reward"] == 30.0


def test_the_moving_average_looks_back_on_a_hundred_rows_that_have_a_return():
    tracker = TrainingTracker(1, 1, BUDGET)
    row_at(tracker, 1)  # empty: does not count
    averages = []
    for i in range(150):
        finish(tracker, e0=float(i))
        averages.append(row_at(tracker, i + 2)["total_reward_ma"])
    assert averages[:3] == [0.0, 0.5, 1.0]
    assert averages[99] == np.mean(range(100))
    assert averages[149] == np.mean(range(50, 150))


def test_a_row_has_the_mean_of_the_episodes_since_the_row_before():
    tracker = TrainingTracker(2, 100, BUDGET)
    means = [row_at(tracker, 100)["mean_return"]]
    finish(tracker, e0=1.0, e1=2.0)
    finish(tracker, e0=6.0)
    means += [row_at(tracker, frame)["mean_return"] for frame in (200, 300)]
    finish(tracker, e1=10.0)
    means.append(row_at(tracker, 400)["mean_return"])
    assert means == [None, 3.0, None, 10.0]


def test_improved_says_whether_the_last_row_set_a_new_best_of_the_recent_episodes():
    tracker = TrainingTracker(1, 1, 10)
    seen = []
    for frame, value in enumerate([None, 1.0, 1.0, 5.0, 0.0], start=1):
        if value is not None:
            for _ in range(20):
                finish(tracker, at=2 * frame, e0=value)
        row_at(tracker, frame)
        seen.append((tracker.improved, tracker.best_return))
    assert seen == [(False, None), (True, 1.0), (False, 1.0), (True, 5.0), (False, 5.0)]


def test_after_a_resume_the_saved_rows_stand_for_their_episodes():
    """The window is one of whole rows here: each episode counts with the mean of its
    row."""
    alone = TrainingTracker(1, 10, 400, ["episode_length"])
    rows = []
    generator = np.random.default_rng(0)
    for step in range(1, 201):
        finish(alone, at=2 * step, e0=float(generator.normal()))
        if alone.due(step):
            rows.append(row_at(alone, step))
    known = Rows(
        rows[0].columns, np.array([row.cells for row in rows], np.float64).T.copy()
    )
    taken_over = TrainingTracker(1, 10, 400, ["episode_length"])
    taken_over.resume_after_rows(known)
    for tracker in (alone, taken_over):
        for _ in range(10):
            finish(tracker, at=402, e0=1.0)
    one, other = (row_at(tracker, 201) for tracker in (alone, taken_over))
    assert other["final_return"] == pytest.approx(one["final_return"])
    assert other["recent_return"] == pytest.approx(one["recent_return"])
    assert [
        other[name] for name in ("epi", "fps", "final_return_episodes", "mean_return")
    ] == [one[name] for name in ("epi", "fps", "final_return_episodes", "mean_return")]


def test_after_a_resume_the_reports_of_the_interrupted_interval_are_forgotten():
    tracker = TrainingTracker(1, 100, BUDGET, ["approx_kl"], info_keys=["score"])
    saved = row_at(tracker, 100)
    tracker.track_update({"loss": 9.0, "approx_kl": 9.0})
    tracker.track_episodes(
        *(np.array([v]) for v in (0, 9.0, 10)), np.array([[9.0]]), 200
    )
    tracker.resume_after_rows(
        Rows(saved.columns, np.array([saved.cells], np.float64).T.copy())
    )
    tracker.track_update({"loss": 1.0})
    row = row_at(tracker, 200)
    assert row["loss"] == 1.0
    assert row["approx_kl"] is row["mean_return"] is row["info_score"] is None


def test_a_row_holds_the_mean_over_the_reports_since_the_last_row():
    tracker = TrainingTracker(1, 100, BUDGET, ["approx_kl"])
    tracker.track_update({"loss": 1.0, "approx_kl": 0.5})
    tracker.track_update({"loss": 4.0})
    first = row_at(tracker, 100)
    second = row_at(tracker, 200)
    assert (first["loss"], first["approx_kl"], first["entropy"]) == (2.5, 0.5, None)
    assert second["loss"] is None


def test_a_nan_that_a_learner_reports_is_shown_and_does_not_spoil_the_next_row():
    tracker = TrainingTracker(1, 100, BUDGET)
    tracker.track_update({"loss": float("nan")})
    assert np.isnan(row_at(tracker, 100)["loss"])
    tracker.track_update({"loss": 1.0})
    assert row_at(tracker, 200)["loss"] == 1.0


@pytest.mark.parametrize("key", ["los", "frame", "total_reward", "episode_length"])
def test_a_report_of_what_is_no_learner_column_is_refused(key):
    tracker = TrainingTracker(1, 100, BUDGET, ["episode_length"])
    with pytest.raises(LabError, match=f'reported "{key}"'):
        tracker.track_update({key: 1.0})


def test_a_misspelt_report_is_answered_with_the_nearest_column():
    with pytest.raises(LabError, match="did you mean entropy"):
        TrainingTracker(1, 100, BUDGET).track_update({"entropi": 1.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_return_that_is_not_finite_is_refused(value):
    with pytest.raises(LabError, match="must be finite"):
        finish(TrainingTracker(2, 100, BUDGET), e1=value)


def test_fps_is_frames_over_seconds_since_the_last_row():
    tracker = TrainingTracker(1, 100, BUDGET)
    assert row_at(tracker, 100, wall_t=2.0)["fps"] == 50.0
    assert row_at(tracker, 400, wall_t=3.0)["fps"] == 300.0
    assert row_at(tracker, 500, wall_t=3.0)["fps"] is None


def test_episode_length_is_filled_when_asked_for():
    tracker = TrainingTracker(2, 100, BUDGET, ["episode_length"])
    index = np.array([0, 1])
    returns = np.array([1.0, 2.0])
    lengths = np.array([10, 15])
    tracker.track_episodes(
        env_index=index,
        episode_return=returns,
        episode_length=lengths,
        info=np.empty((2, 0)),
        total_frame=0,
    )
    assert row_at(tracker, 100)["episode_length"] == 12.5


def test_a_row_is_due_once_per_crossing_of_a_multiple_of_the_log_frequency():
    tracker = TrainingTracker(8, 100, BUDGET)
    rows = []
    for frame in range(8, 1000, 8):
        if tracker.due(frame):
            rows.append(row_at(tracker, frame)["frame"])
    assert rows == [104, 200, 304, 400, 504, 600, 704, 800, 904]


def test_a_step_over_several_multiples_makes_one_row():
    tracker = TrainingTracker(300, 100, BUDGET)
    assert tracker.due(300)
    row_at(tracker, 300)
    assert not tracker.due(399)
    assert tracker.due(400)


def test_the_last_frame_tells_whether_a_final_row_is_missing():
    tracker = TrainingTracker(1, 100, BUDGET)
    assert (tracker.last_frame, tracker.last_row) == (0, None)
    row = row_at(tracker, 100)
    assert tracker.last_frame == 100
    assert tracker.last_row is row


def test_a_resumed_run_may_have_another_log_frequency():
    old = TrainingTracker(1, 100, BUDGET)
    new = TrainingTracker(1, 30, BUDGET)
    row_at(old, 100)
    new.load_state_dict(old.state_dict())
    assert not new.due(119)
    assert new.due(120)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            TrainingTracker(1, 10, BUDGET, ["clip_eps"]),
            r"clip_eps, .*; resume with .* env\.info_keys of",
        ),
        (
            TrainingTracker(2, 10, BUDGET),
            r"env\.num_envs = 1: the checkpoint has 2 environments",
        ),
    ],
)
def test_the_state_of_another_kind_of_run_is_refused(other, message):
    with pytest.raises(CheckpointError, match=message):
        TrainingTracker(1, 10, BUDGET).load_state_dict(other.state_dict())
