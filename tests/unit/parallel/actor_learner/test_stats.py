"""The statistics of the queue between actors and learner, against sums by hand."""

import numpy as np
import pytest

from slm_lab.parallel.actor_learner.source import WARM_UP, ActorSeconds, PipelineStats
from slm_lab.session.pace import NANO, Pace

SLICES = 12


class Time(Pace):
    """A clock that moves only on demand."""

    def __init__(self):
        super().__init__()
        self.now = 100.0

    def clock(self):
        return np.array([self.now * NANO, 0.0])


@pytest.fixture
def clock():
    return Time()


def iterate(stats, clock, seconds):
    """Iterations that take so long, each."""
    for each in seconds:
        clock.now += each
        stats.end_iteration()


def warmed_up(clock):
    """One that measures from now on."""
    stats = PipelineStats(SLICES, clock)
    iterate(stats, clock, [50.0] * WARM_UP)
    return stats


def test_columns_are_all_that_a_report_may_have(clock):
    stats = warmed_up(clock)
    stats.lags.append(1)
    iterate(stats, clock, [1.0])
    assert (
        tuple(stats.report(1.0, ActorSeconds(1.0, 1.0, 0.0))) == PipelineStats.columns
    )


@pytest.mark.parametrize(
    ("seconds", "median"), [([0.5], 0.5), ([1, 9, 2], 2.0), ([4, 1, 3, 2], 2.5)]
)
def test_the_environments_of_an_iteration_over_the_median_of_its_seconds(
    clock, seconds, median
):
    stats = warmed_up(clock)
    iterate(stats, clock, seconds)
    assert stats.report(100.0, ActorSeconds(0.0, 1.0, 0.0))["eps"] == SLICES / median


def test_the_first_iterations_of_a_run_are_not_measured_in_whatever_row_they_come(
    clock,
):
    stats = PipelineStats(SLICES, clock)
    for _ in range(WARM_UP):
        iterate(stats, clock, [50.0])
        assert "eps" not in stats.report(100.0, ActorSeconds(0.0, 1.0, 0.0))
    iterate(stats, clock, [2.0])
    assert stats.report(100.0, ActorSeconds(0.0, 1.0, 0.0))["eps"] == SLICES / 2


def test_a_row_without_a_finished_iteration_shows_the_last_speed(clock):
    stats = warmed_up(clock)
    assert "eps" not in stats.report(10.0, ActorSeconds(0.0, 1.0, 0.0))
    iterate(stats, clock, [4.0])
    for _ in range(3):
        assert stats.report(10.0, ActorSeconds(0.0, 1.0, 0.0))["eps"] == SLICES / 4
    iterate(stats, clock, [2.0])
    assert stats.report(10.0, ActorSeconds(0.0, 1.0, 0.0))["eps"] == SLICES / 2


def evaluate(stats, clock, seconds):
    clock.now += seconds
    stats.pause(ActorSeconds(0.0, 0.0, 0.0))
    stats.resume(ActorSeconds(0.0, 0.0, 0.0))


def test_the_measures_of_a_learner_leave_its_evaluations_out(
    clock,
):
    stats = PipelineStats(SLICES, clock)
    for _ in range(WARM_UP):
        iterate(stats, clock, [50.0])
        evaluate(stats, clock, 1000.0)
    assert "eps" not in stats.report(100.0, ActorSeconds(0.0, 1.0, 0.0))
    iterate(stats, clock, [3.0])
    evaluate(stats, clock, 1000.0)
    assert stats.report(100.0, ActorSeconds(0.0, 1.0, 0.0))["eps"] == SLICES / 3


def test_iterations_and_lags_are_those_since_the_last_report(clock):
    stats = warmed_up(clock)
    iterate(stats, clock, [8.0])
    stats.lags.append(50)
    stats.report(8.0, ActorSeconds(0.0, 1.0, 0.0))
    iterate(stats, clock, [2.0])
    for lag in (0, 1, 5):
        stats.lags.append(lag)
    report = stats.report(2.0, ActorSeconds(0.0, 2.0, 0.0))
    assert (report["eps"], report["policy_lag"], report["policy_lag_max"]) == (
        SLICES / 2,
        2.0,
        5.0,
    )


def test_the_share_of_their_time_that_actors_waited(clock):
    stats = PipelineStats(SLICES, clock)
    assert stats.report(10.0, ActorSeconds(3.0, 9.0, 0.0))["actor_wait_share"] == 0.25
    assert stats.report(10.0, ActorSeconds(4.0, 10.0, 0.0))["actor_wait_share"] == 0.5
    assert stats.report(10.0, ActorSeconds(4.0, 12.0, 0.0))["actor_wait_share"] == 0.0


def test_the_share_of_the_training_that_the_learner_waited(clock):
    stats = PipelineStats(SLICES, clock)
    for seconds in (1.0, 2.0):
        stats.waited += seconds
    assert stats.report(12.0, ActorSeconds(0.0, 1.0, 0.0))["learner_wait_share"] == 0.25
    assert stats.report(12.0, ActorSeconds(0.0, 2.0, 0.0))["learner_wait_share"] == 0.0


def test_unknown_values_are_not_reported(clock):
    assert PipelineStats(SLICES, Pace()).report(0.0, ActorSeconds(0.0, 0.0, 0.0)) == {}
    assert PipelineStats(SLICES, Pace()).report(1.0, ActorSeconds(0.0, 0.0, 0.0)) == {
        "learner_wait_share": 0.0
    }
