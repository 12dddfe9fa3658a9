import pytest

from slm_lab.metrics.reader import NO_ROWS, read_rows
from slm_lab.metrics.trial_metrics import throughput
from tests.unit.charts.session import write_session


def rows_of(folder, frame, opt_step, wall_t, **staleness):
    csv = folder / f"{frame}_{opt_step}.csv"
    names = ["frame", "total_frame", "wall_t", "opt_step", *staleness]
    cells = [frame, frame, wall_t, opt_step, *staleness.values()]
    csv.write_text(",".join(names) + "\n" + ",".join(map(str, cells)) + "\n")
    return read_rows(csv)


def test_workers_add_up_and_repeated_trainings_are_averaged(tmp_path):
    workers = [rows_of(tmp_path, 1000 * (i + 1), 10 * (i + 1), 10.0) for i in range(4)]
    speed = throughput(workers, [0, 0, 1, 1])
    assert speed.frames_per_s == pytest.approx((300 + 700) / 2)
    assert speed.updates_per_s == pytest.approx((3 + 7) / 2)
    assert throughput(workers, [0, 1, 2, 3]).frames_per_s == pytest.approx(250)
    assert (speed.staleness_p50, speed.staleness_p95) == (None, None)


def test_staleness_is_the_mean_over_all_rows_that_have_it(tmp_path):
    known = [
        rows_of(tmp_path, i, i, 1.0, staleness_p50=i, staleness_p95=3 * i)
        for i in (1, 3)
    ]
    speed = throughput([*known, rows_of(tmp_path, 9, 9, 1.0)], [0, 0, 0])
    assert (speed.staleness_p50, speed.staleness_p95) == (2.0, 6.0)


def test_actor_statistics_are_means_and_the_worst_lag_is_a_maximum(tmp_path):
    columns = (
        "eps",
        "policy_lag",
        "policy_lag_max",
        "actor_wait_share",
        "learner_wait_share",
    )
    rows = [
        rows_of(tmp_path, i, i, 1.0, **{name: i + n for n, name in enumerate(columns)})
        for i in (1, 3)
    ]
    speed = throughput([*rows, rows_of(tmp_path, 9, 9, 1.0)], [0, 1, 2])
    assert [getattr(speed, name) for name in columns] == [2.0, 3.0, 5.0, 5.0, 6.0]


def test_a_learner_that_writes_for_its_actors_counts_the_frames_of_all(tmp_path):
    learners = [rows_of(tmp_path, 1000 * i, 10 * i, 10.0) for i in (1, 3)]
    speed = throughput(learners, [0, 1])
    assert (speed.frames_per_s, speed.updates_per_s) == (200, 2)


def test_without_rows_there_is_no_throughput(tmp_path):
    assert set(throughput([NO_ROWS, NO_ROWS], [0, 1])) == {None}
    real = read_rows(write_session(tmp_path / "s.csv", 5))
    assert throughput([real, NO_ROWS], [0, 0]).frames_per_s == pytest.approx(
        real["frame"][-1] / real["wall_t"][-1]
    )
