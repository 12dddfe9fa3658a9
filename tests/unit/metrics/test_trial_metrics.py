import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slm_lab.metrics.trial_metrics import (
    SESSION_METRICS,
    session_metrics,
    trial_metrics,
)
from tests.unit.charts.session import session_rows

NAN = math.nan
RETURNS = st.lists(st.floats(0, 1000), min_size=2, max_size=30).filter(
    lambda r: sum(r) > 1e-3
)


def test_metrics_of_four_rows_by_hand():
    metrics = session_metrics(
        session_rows([30.0, 50.0, 40.0, 70.0]), random_return=20.0
    )
    # s = 10, 30, 20, 50 at frames 100 … 400 and optimizer steps 10 … 40
    assert metrics.total_reward_ma == 190 / 4
    assert metrics.strength == 110 / 4
    assert metrics.max_strength == 50.0
    assert metrics.final_strength == 50.0
    weighted = 10 / 1 + 30 / 2 + 20 / 3 + 50 / 4
    assert metrics.sample_efficiency == pytest.approx(weighted / 100 / 110)
    assert metrics.training_efficiency == pytest.approx(weighted / 10 / 110)
    assert metrics.stability == pytest.approx(1 - 10 / 60)
    assert (metrics.frame, metrics.num_rows, metrics.random_return) == (400, 4, 20.0)
    assert metrics.reasons == {}


def test_rows_before_the_first_return_are_left_out():
    late = session_metrics(session_rows([NAN, NAN, 30.0, 50.0]), 20.0)
    alone = session_metrics(session_rows([30.0, 50.0], [300, 400], [30, 40]), 20.0)
    assert replace(late, final_return_episodes=2) == alone


def test_the_final_return_is_that_of_the_last_row_with_its_count_of_episodes():
    metrics = session_metrics(session_rows([30.0, 50.0, 40.0]), None)
    assert (metrics.final_return, metrics.final_return_episodes) == (40.0, 3)
    none = session_metrics(session_rows([NAN, NAN]), None)
    assert (none.final_return, none.final_return_episodes) == (None, 0)
    assert none.reasons["final_return"] == "no row has a return"


def test_a_trials_final_return_is_the_mean_over_its_sessions_with_its_deviation():
    rows = [session_rows([10.0, each]) for each in (20.0, 40.0, 60.0, 80.0)]
    trial = trial_metrics(rows, None)
    assert (trial.final_return, trial.final_return_episodes) == (50.0, 8)
    assert trial.final_return_std == np.std([20, 40, 60, 80])
    assert trial_metrics(rows, None, run_of=[0, 0, 1, 1]).final_return_std == np.std(
        [30, 70]
    )
    assert trial_metrics(rows[:1], None).final_return_std is None
    assert trial_metrics([rows[0], session_rows([])], None).final_return == 20.0


def test_the_moving_average_is_over_the_last_hundred_returns():
    metrics = session_metrics(session_rows([NAN, *np.arange(150.0)]), None)
    assert metrics.total_reward_ma == np.mean(np.arange(50.0, 150.0))


def test_rows_before_the_first_optimizer_step_do_not_count_for_training_efficiency():
    metrics = session_metrics(session_rows([5.0, 10.0, 30.0], opt_steps=[0, 4, 8]), 0.0)
    assert metrics.training_efficiency == pytest.approx((10 / 4 + 30 / 8) / 40)
    assert metrics.sample_efficiency == pytest.approx(
        (5 / 100 + 10 / 200 + 30 / 300) / 45
    )


def test_without_an_optimizer_step_there_is_no_training_efficiency():
    metrics = session_metrics(session_rows([5.0, 10.0], opt_steps=[0, 0]), 0.0)
    assert metrics.training_efficiency is None
    assert "first step" in metrics.reasons["training_efficiency"]
    assert metrics.sample_efficiency is not None


def test_without_the_random_agents_return_only_means_of_returns_are_known():
    metrics = session_metrics(session_rows([5.0, 10.0]), None)
    assert metrics.total_reward_ma == 7.5
    assert set(metrics.reasons) == set(SESSION_METRICS) - {
        "final_return",
        "total_reward_ma",
    }
    assert all("not measured" in reason for reason in metrics.reasons.values())


@pytest.mark.parametrize("returns", [[], [NAN, NAN]])
def test_without_a_return_every_metric_is_null_with_a_reason(returns):
    metrics = session_metrics(session_rows(returns), 1.0)
    assert all(getattr(metrics, name) is None for name in SESSION_METRICS)
    assert set(metrics.reasons) == set(SESSION_METRICS)
    assert metrics.num_rows == 0


@pytest.mark.parametrize(
    ("returns", "reason"),
    [
        ([7.0, 7.0, 7.0], "denominator is zero"),
        ([7.0 + 1e-12, 7.0, 7.0 - 1e-12], "denominator is zero"),
        ([17.0, -3.0, 17.0, -3.0], "changes sign"),
        ([3.0, 2.0, 1.0], "denominator is negative"),
    ],
)
def test_a_ratio_over_nothing_or_over_opposite_signs_is_null(returns, reason):
    metrics = session_metrics(session_rows(returns), 7.0)
    for name in ("sample_efficiency", "training_efficiency"):
        assert getattr(metrics, name) is None
        assert reason in metrics.reasons[name]
    assert metrics.stability is None
    assert metrics.strength == pytest.approx(np.mean(returns) - 7.0)


def test_a_few_returns_a_little_below_the_random_agent_leave_the_ratios_their_meaning():
    # s = −1, 4, 5, 10: one twentieth of Σ|s| lies below
    metrics = session_metrics(session_rows([19.0, 24.0, 25.0, 30.0]), 20.0)
    expected = (-1 / 100 + 4 / 200 + 5 / 300 + 10 / 400) / 18
    assert metrics.sample_efficiency == pytest.approx(expected)
    assert metrics.stability == 1.0


def test_stability_takes_two_rows():
    metrics = session_metrics(session_rows([30.0]), 20.0)
    assert metrics.stability is None
    assert "two rows" in metrics.reasons["stability"]
    assert metrics.sample_efficiency == pytest.approx(1 / 100)


@given(returns=RETURNS, shift=st.integers(-1000, 1000))
def test_shifting_all_returns_and_the_random_agents_alike_changes_no_strength(
    returns, shift
):
    here = session_metrics(session_rows(returns), 0.0)
    there = session_metrics(session_rows(np.array(returns) + shift), float(shift))
    for name in (
        "strength",
        "max_strength",
        "final_strength",
        "sample_efficiency",
        "stability",
    ):
        one = getattr(here, name)
        other = getattr(there, name)
        if one is not None and other is not None:
            assert other == pytest.approx(one, rel=1e-6, abs=1e-6)


@given(returns=RETURNS)
def test_stability_is_one_when_returns_never_drop_and_never_more(returns):
    assume(sum(sorted(returns)[:-1]) > 1e-3)
    assert session_metrics(session_rows(sorted(returns)), 0.0).stability == 1.0
    stability = session_metrics(session_rows(returns), 0.0).stability
    assert stability is None or -1e-9 <= stability <= 1.0


def test_trial_metrics_are_means_over_sessions():
    dfs = [session_rows([30.0, 50.0]), session_rows([40.0, 80.0])]
    trial = trial_metrics(dfs, 20.0)
    one, other = (session_metrics(df, 20.0) for df in dfs)
    for name in SESSION_METRICS:
        assert getattr(trial, name) == (getattr(one, name) + getattr(other, name)) / 2
    # s = 10, 30 and 20, 60: means 15, 45, deviations 5, 15
    assert trial.consistency == pytest.approx(1 - 2 * 20 / 60)
    assert trial.num_sessions == 2
    assert trial.rests_on == dict.fromkeys([*SESSION_METRICS, "consistency"], 2)


def test_trial_metrics_say_how_many_sessions_they_rest_on():
    trial = trial_metrics(
        [session_rows([30.0, 50.0]), session_rows([40.0]), session_rows([])], 20.0
    )
    assert trial.num_sessions == 3
    assert (trial.rests_on["strength"], trial.rests_on["stability"]) == (2, 1)
    assert trial.stability == 1.0
    assert trial.rests_on["consistency"] == 2


def test_a_reason_that_sessions_share_stands_once():
    sessions = [session_rows([17.0, -3.0, 17.0 + each]) for each in range(16)]
    lines = trial_metrics(sessions, 7.0).reasons["stability"].split("; ")
    assert len(lines) == 1


def test_a_metric_that_no_session_has_is_null_with_the_sessions_reasons():
    trial = trial_metrics([session_rows([30.0]), session_rows([])], 20.0)
    assert trial.stability is None
    assert trial.reasons["stability"] == (
        "it takes two rows with a return to see a drop; no row has a return"
    )
    assert trial_metrics([], 20.0).reasons["strength"] == "no Sessions"


def test_consistency_interpolates_sessions_to_common_frames_first():
    straight = [10.0, 20.0, 30.0, 40.0]
    shifted = session_rows([15.0, 25.0, 35.0, 45.0], frames=[150, 250, 350, 450])
    trial = trial_metrics([session_rows(straight), shifted], 0.0)
    assert trial.consistency == pytest.approx(1.0)


@given(returns=RETURNS, count=st.integers(2, 5))
def test_equal_sessions_are_wholly_consistent(returns, count):
    trial = trial_metrics([session_rows(returns)] * count, 0.0)
    assert trial.consistency == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("dfs", "random_return", "reason"),
    [
        ([session_rows([1.0, 2.0])], 0.0, "two Sessions"),
        ([session_rows([1.0]), session_rows([NAN])], 0.0, "two Sessions"),
        (
            [session_rows([1.0]), session_rows([1.0], frames=[200])],
            0.0,
            "no frames in common",
        ),
        ([session_rows([1.0]), session_rows([2.0])], None, "not measured"),
        ([session_rows([1.0]), session_rows([2.0])], 5.0, "denominator is negative"),
    ],
)
def test_consistency_is_null_where_it_has_no_meaning(dfs, random_return, reason):
    trial = trial_metrics(dfs, random_return)
    assert trial.consistency is None
    assert reason in trial.reasons["consistency"]
    assert trial.rests_on["consistency"] == 0


def test_consistency_of_a_repeated_training_is_that_of_its_runs():
    """The workers differ, the means of the two runs do not."""
    low = session_rows([20.0, 30.0])
    high = session_rows([40.0, 50.0])
    repeated = trial_metrics([low, high, high, low], 0.0, run_of=[0, 0, 1, 1])
    assert repeated.consistency == pytest.approx(1.0)
    assert repeated.rests_on["consistency"] == 4
    assert trial_metrics([low, high, high, low], 0.0).consistency < 1.0
