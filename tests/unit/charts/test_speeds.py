import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.charts.axis import TOTAL_FRAMES, wall_clock
from slm_lab.charts.speeds import (
    Training,
    VariantResult,
    Way,
    line_over,
    summary_table,
    text_table,
    training_of,
    trainings_table,
    window_of,
)
from slm_lab.metrics.reader import NO_ROWS
from slm_lab.records.table import read_table
from tests.unit.charts.modes import (
    BUDGET,
    WINDOW,
    comparison,
    outcome,
    rows_of,
    training,
    worker,
)

TRACEBACK = """Traceback (most recent call last):
  File "pole.py", line 12, in step
ValueError: boom"""
CLOCKS = ("frame", "total_frame", "wall_t", "cpu_t")


def ragged(seed, rows):
    """A worker of two that writes when it likes."""
    generator = np.random.default_rng(seed)
    steps = {name: generator.uniform(1, 100, rows).cumsum() for name in CLOCKS}
    returns = generator.normal(size=rows)
    episodes = generator.integers(1, 5, rows).cumsum()
    return rows_of(**steps, epi=episodes, mean_return=returns, final_return=returns)


def shown(comparison):
    return text_table(summary_table(comparison))


def cells(table, name):
    return [row[table.header.index(name)] for row in table.rows]


def test_a_single_process_is_seen_as_its_rows_are():
    rows = worker()
    alone = training_of([rows], window=50)
    for clock in CLOCKS:
        np.testing.assert_allclose(alone.clock(clock), rows[clock])
    returns = rows["mean_return"]  # each of one episode, and twenty are the fewest
    last_twenty = [
        returns[max(0, row - 19) : row + 1].mean() for row in range(len(rows))
    ]
    np.testing.assert_allclose(alone.episode_return, last_twenty)
    assert (alone.frames, alone.frames_per_s) == (BUDGET, pytest.approx(1000))


def test_workers_have_frames_per_worker_and_the_cpu_time_of_all():
    two = training(2, speed=2000.0, cpu=0.8)
    np.testing.assert_allclose(two.frame, two.total_frame / 2)
    np.testing.assert_allclose(two.wall_t, two.total_frame / 2000)
    np.testing.assert_allclose(two.cpu_t, 2 * 0.8 * two.wall_t)


def test_frames_played_for_one_learner_are_divided_among_its_actors():
    rows = worker(cpu=0.8)
    three = training_of([rows], window=50, actors=3)
    np.testing.assert_allclose(three.frame, rows["frame"] / 3)
    np.testing.assert_array_equal(three.total_frame, rows["total_frame"])
    np.testing.assert_array_equal(three.cpu_t, rows["cpu_t"])
    assert three.frames_per_s == training_of([rows], window=50).frames_per_s


def test_cores_used_are_those_of_all_workers_together():
    assert training(2, 2000.0, cpu=0.8).cores_used == pytest.approx(1.6)
    assert cells(shown(comparison(outcome("synced", 2, 1700.0))), "cores used") == [
        "0.95",
        "1.90",
    ]


def test_a_process_that_writes_rows_for_all_counts_as_all():
    all_write = training(2, speed=2000.0)
    one_writes = training_of([worker(2, 2000.0, writes_for_all=True)], WINDOW)
    for clock in CLOCKS:
        np.testing.assert_allclose(one_writes.clock(clock), all_write.clock(clock))
    np.testing.assert_allclose(one_writes.episode_return, all_write.episode_return)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.randoms())
def test_clocks_never_go_back_and_the_order_of_workers_does_not_matter(counts, random):
    workers = [ragged(seed, rows) for seed, rows in enumerate(counts)]
    one = training_of(workers, 200.0)
    random.shuffle(workers)
    other = training_of(workers, 200.0)
    for clock in CLOCKS:
        assert (np.diff(one.clock(clock)) >= 0).all()
        np.testing.assert_allclose(one.clock(clock), other.clock(clock))
    np.testing.assert_allclose(one.episode_return, other.episode_return, atol=1e-12)


def test_a_worker_that_has_ended_uses_no_more_cpu_time():
    early, late = worker(2, 2000.0), worker(2, 2000.0)
    half = len(early) // 2
    short = rows_of(**{name: early[name][:half] for name in early.columns})
    joined = training_of([short, late], WINDOW)
    assert joined.cpu_t[-1] == pytest.approx(short["cpu_t"][-1] + late["cpu_t"][-1])
    assert joined.wall_t[-1] == late["wall_t"][-1]


def test_rows_without_cpu_time_have_all_the_rest():
    rows = worker()
    older = rows_of(**{name: rows[name] for name in rows.columns if name != "cpu_t"})
    joined = training_of([rows, older], WINDOW)
    assert np.isnan(joined.cpu_t).all()
    assert np.isfinite(joined.wall_t).all()


def test_a_training_without_rows_has_nothing_and_none_of_it_is_a_number():
    for rows in ([], [NO_ROWS]):
        empty = training_of(rows, WINDOW)
        assert np.isnan([empty.frames_per_s, empty.final_return]).all()
        assert empty.reached(0.0) is None


def test_returns_are_the_mean_of_all_workers_over_the_window():
    one, other = worker(2, returns=10.0), worker(2, returns=30.0)
    np.testing.assert_allclose(training_of([one, other], WINDOW).episode_return, 20.0)


def test_a_threshold_is_reached_in_a_whole_window_only():
    lucky = training(returns=500.0)
    at = lucky.reached(450.0)
    assert lucky.total_frame[at] == WINDOW
    assert lucky.reached(500.1) is None


@pytest.mark.parametrize(
    ("max_frame", "log_frequency", "workers", "window"),
    [(200_000, 500, 4, 10_000), (10_000, 500, 4, 2_000), (1_000, 500, 4, 1_000)],
)
def test_the_window_holds_a_row_of_each_worker_and_no_more_than_the_budget(
    max_frame, log_frequency, workers, window
):
    assert window_of(max_frame, log_frequency, workers) == window


def test_the_speed_up_is_that_of_rates_whatever_the_totals():
    whole, half = (
        outcome("synced", 2, 1700.0),
        outcome("shared", 2, 1700.0, budget=BUDGET // 2),
    )
    both = comparison(whole, half)
    assert summary_table(both)["speed_up"].tolist() == pytest.approx([1.0, 1.7, 1.7])
    assert cells(shown(both), "of ideal") == ["100%", "85%", "85%"]


def test_speed_ups_are_of_the_same_seed_and_their_median_counts():
    slow_hour = outcome("synced", 2, 1000.0, 1600.0, 1800.0)
    baseline = VariantResult(
        Way("false", 1), {0: training(speed=500.0), 1: training(), 2: training()}
    )
    both = comparison(slow_hour, seeds=3)
    both = both._replace(outcomes=(baseline, slow_hour))
    found = summary_table(both).loc[1, ["speed_up_low", "speed_up", "speed_up_high"]]
    assert found.tolist() == pytest.approx([1.6, 1.8, 2.0])


def test_without_the_baseline_there_is_no_speed_up():
    alone = VariantResult(Way("false", 1), {}, {0: "boom"})
    both = comparison(outcome("synced", 2, 1700.0))
    both = both._replace(outcomes=(alone, both.outcomes[1]))
    table = shown(both)
    assert cells(table, "frames/s") == ["failed", "1,700"]
    assert cells(table, "speed-up") == ["–", "–"]


def test_a_seed_that_never_reaches_the_threshold_has_infinite_time():
    good, bad = training(2, 2000.0), training(2, 2000.0, returns=0.0)
    mixed = VariantResult(Way("synced", 2), {0: good, 1: bad, 2: good})
    failing = VariantResult(Way("shared", 2), {0: bad, 1: bad, 2: good})
    never = VariantResult(Way("all_reduce", 2), {0: bad})
    every = comparison(mixed, failing, never, threshold=50.0, seeds=3)
    late = cells(shown(every), "frames to 50")
    frames = good.total_frame[good.reached(50.0)]
    assert late[1:] == [f"{frames:,.0f} (2 of 3)", "in 1 of 3 only", "never"]
    assert summary_table(every)["frames_to_threshold"].tolist()[1:] == [
        frames,
        np.inf,
        np.inf,
    ]


def test_the_time_to_a_threshold_is_read_at_the_same_frame():
    one = training(2, 2000.0, cpu=0.5)
    every = comparison(VariantResult(Way("synced", 2), {0: one}), threshold=50.0)
    summary = summary_table(every).loc[1]
    assert summary.seconds_to_threshold == pytest.approx(
        summary.frames_to_threshold / 2000
    )
    assert summary.cpu_seconds_to_threshold == pytest.approx(
        summary.seconds_to_threshold
    )


def test_without_a_threshold_no_column_speaks_of_one():
    assert len(shown(comparison()).header) == 6
    assert len(shown(comparison(threshold=1.0)).header) == 9


def test_more_workers_than_cores_are_marked():
    table = shown(
        comparison(outcome("synced", 2, 1700.0), outcome("synced", 4, 1900.0))
    )
    assert cells(table, "variant") == ["one process", "synced × 2", "synced × 4 †"]


def test_a_variant_without_all_seeds_says_how_many():
    table = shown(comparison(outcome("synced", 2, 1700.0), seeds=3))
    assert cells(table, "variant")[1] == "synced × 2 (1 of 3 seeds)"


def test_the_tables_hold_every_training_and_why_others_failed():
    broken = VariantResult(
        Way("shared", 2),
        {0: training(2)},
        {1: f"{TRACEBACK}\nthe state is saved at frame 3"},
    )
    every = comparison(broken, threshold=50.0, seeds=2)
    table = trainings_table(every)
    assert list(zip(table["mode"], table["random_seed"], strict=True)) == [
        ("false", 0),
        ("false", 1),
        ("shared", 0),
        ("shared", 1),
    ]
    assert table["failure"].tolist()[3] == "ValueError: boom"
    assert table.loc[3, ["total_frame", "frames_to_threshold"]].isna().all()
    shared = summary_table(every).loc[
        1, ["mode", "finished", "failed", "ideal_speed_up"]
    ]
    assert shared.tolist() == ["shared", 1, 1, 2]


def test_a_line_over_a_clock_is_in_the_units_of_its_axis():
    slow = training(speed=1.0)
    assert isinstance(slow, Training)
    minutes = line_over(slow, wall_clock(600.0))
    np.testing.assert_allclose(minutes.x, slow.wall_t / 60)
    np.testing.assert_allclose(line_over(slow, TOTAL_FRAMES).y, slow.episode_return)


@pytest.mark.parametrize("threshold", [None, 100.0])
def test_before_the_first_training_has_ended_there_is_a_table_of_dashes(threshold):
    none = outcome("false", 1), outcome("synced", 2)
    early = comparison(threshold=threshold)._replace(outcomes=none)
    rows = shown(early).rows
    assert [row[0] for row in rows] == ["one process", "synced × 2"]
    assert {cell for row in rows for cell in row[1:]} == {"–"}


def test_a_stored_summary_shows_the_same_table(tmp_path):
    half = outcome("synced", 2, 1700.0)
    none = VariantResult(Way("all_reduce", 4, crowded=True), {}, {0: "boom"})
    summary = summary_table(comparison(half, none, threshold=50.0))
    file = tmp_path / "spec_compare_df.csv"
    summary.to_csv(file, index=False)

    assert text_table(read_table(file)) == text_table(summary)
