"""Population based training: who takes over from whom, when, and with which values."""

import numpy as np
import pytest

from slm_lab.experiment.search.judge import What
from slm_lab.experiment.search.population import Population
from slm_lab.experiment.search.space import Space
from slm_lab.spec.schema.scheduler import PbtSpec
from tests.unit.experiment.search.small import GAMMA, RATE, assert_drawn, searched

CLIP = "agent.net.clip_grad_val"
SEARCH = {
    f"{GAMMA}__uniform": [0.9, 0.99],
    f"{RATE}__loguniform": [1e-4, 1e-2],
    "agent.algorithm.training_epoch__randint": [1, 8],
    f"{CLIP}__choice": [0.1, 0.5, None],
}
DIMENSIONS = Space(searched(SEARCH)).dimensions
START = {GAMMA: 0.95, RATE: 1e-3, "agent.algorithm.training_epoch": 4, CLIP: 0.5}


def population(size=4, max_frame=1000, seed=0, *, running=True, **args):
    given = {"perturbation_interval": 100, "quantile_fraction": 0.25, **args}
    judge = Population(PbtSpec(**given), DIMENSIONS, max_frame, seed)
    for trial in range(size):
        judge.add(trial, {**START, GAMMA: 0.9 + 0.01 * trial})
    for trial in range(size if running else 0):
        judge.begin(trial)
    return judge


def reported(judge, frame, scores):
    """The copies that come of a report of each trial; there is room for all at any time."""
    orders = []
    for trial, score in enumerate(scores):
        orders += judge.report(trial, frame, score)
        judge.begin(trial)
    return orders


def test_the_worst_goes_on_from_the_best():
    judge = population()
    (order,) = reported(judge, 100, [3.0, 9.0, 5.0, 1.0])
    assert (order.trial, order.what, order.donor) == (3, What.COPY, 1)


def test_the_better_go_on_as_they_are():
    assert reported(population(), 100, [1.0, 2.0, 3.0, 4.0]) == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_nobody_both_takes_over_and_is_taken_from(size, fraction, seed):
    judge = population(size, seed=seed, max_frame=10_000, quantile_fraction=fraction)
    rng = np.random.default_rng(seed)
    known = {}
    for frame in range(100, 2000, 100):
        for trial, score in enumerate(rng.normal(size=size)):
            known[trial] = score
            for order in judge.report(trial, frame, score):
                assert order.what is What.COPY
                assert order.trial == trial != order.donor
                assert known[order.donor] > score
                del known[trial]
                judge.begin(trial)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_values_stay_within_their_bounds_and_types(seed, probability):
    judge = population(seed=seed, max_frame=10_000, resample_probability=probability)
    for frame in range(100, 1500, 100):
        for order in reported(judge, frame, [1.0, 2.0, 3.0, 0.0]):
            assert list(order.point) == [each.path for each in DIMENSIONS]
            for each in DIMENSIONS:
                assert_drawn(each, order.point[each.path])


def test_values_that_are_not_drawn_anew_are_those_of_the_donor_times_a_factor():
    judge = population(resample_probability=0.0, perturbation_factors=[0.5])
    (order,) = reported(judge, 100, [3.0, 5.0, 9.0, 1.0])
    assert order.donor == 2
    assert order.point[RATE] == pytest.approx(0.5e-3)
    assert order.point[GAMMA] == 0.9  # the lower bound
    assert order.point["agent.algorithm.training_epoch"] == 2
    assert order.point[CLIP] in (0.1, None)


def test_the_next_values_are_made_of_those_that_a_trial_took_over():
    judge = population(2, resample_probability=0.0, perturbation_factors=[0.5])
    (first,) = reported(judge, 100, [9.0, 1.0])
    (second,) = reported(judge, 200, [0.0, 9.0]) or judge.report(0, 300, 0.0)
    assert (second.trial, second.donor) == (0, 1)
    assert second.point[RATE] == pytest.approx(first.point[RATE] / 2)


@pytest.mark.parametrize("burn_in", [0, 150])
def test_nothing_is_copied_before_the_first_look(burn_in):
    judge = population(burn_in_period=burn_in)
    for frame in range(1, burn_in + 100, 10):
        assert reported(judge, frame, [4.0, 3.0, 2.0, 1.0]) == []
    assert reported(judge, burn_in + 100, [4.0, 3.0, 2.0, 1.0])


def test_a_trial_is_looked_at_once_an_interval():
    judge = population()
    assert reported(judge, 100, [1.0, 2.0, 3.0, 4.0]) == []
    for frame in (101, 150, 199):
        assert reported(judge, frame, [0.0, 0.0, 0.0, -9.0]) == []
    assert reported(judge, 200, [1.0, 2.0, 3.0, -9.0])


def test_what_has_taken_over_is_left_alone_for_an_interval():
    judge = population(2)
    assert judge.report(0, 100, 5.0) == []
    assert judge.report(0, 200, 6.0) == []
    assert judge.report(0, 400, 7.0) == []
    (order,) = judge.report(1, 100, 1.0)
    assert order.donor == 0
    judge.begin(1)
    # It goes on from frame 400: not looked at before 500.
    assert judge.report(1, 410, 1.0) == []
    assert judge.report(1, 500, 1.0)


def test_nothing_is_copied_at_the_end_of_the_budget():
    judge = population()
    assert reported(judge, 1000, [4.0, 3.0, 2.0, 1.0]) == []


def test_the_one_that_is_furthest_behind_runs_next():
    judge = population(running=False)
    assert judge.choose([0, 1, 2, 3]) == 0
    for trial, frame in ((0, 80), (1, 50), (2, 50), (3, 60)):
        judge.begin(trial)
        judge.report(trial, frame, 1.0)
    assert judge.choose([0, 1, 2, 3]) == 1
    assert judge.choose([0, 2, 3]) == 2
    assert judge.choose([0, 3]) == 3
    assert judge.choose([]) is None


def test_what_took_over_stands_where_its_donor_stood():
    judge = population(2)
    judge.report(0, 100, 5.0)
    judge.report(0, 300, 5.0)
    judge.report(1, 100, 1.0)
    assert judge.choose([0, 1]) == 0  # both at 300


def test_trials_take_turns_where_not_all_have_room():
    judge = population(3, running=False)
    judge.begin(0)
    (order,) = judge.report(0, 100, 1.0)
    assert (order.trial, order.what) == (0, What.PAUSE)
    assert judge.choose([0, 1, 2]) == 1


def test_nobody_takes_a_turn_where_all_run():
    judge = population(3)
    assert judge.report(0, 100, 1.0) == []


def test_who_has_ended_is_neither_copied_nor_chosen():
    judge = population()
    reported(judge, 100, [3.0, 4.0, 5.0, 9.0])
    judge.end(3)
    assert judge.choose([3]) is None
    assert judge.report(3, 300, 9.0) == []
    (order,) = judge.report(0, 200, 3.0)
    assert order.donor == 2
    judge.end(3)


def test_all_are_known_before_the_first_begins():
    assert population().needs_all


def run(seed):
    judge = population(8, seed=seed, max_frame=10_000)
    rng = np.random.default_rng(0)
    frames = range(100, 1500, 100)
    return [order for frame in frames for order in reported(judge, frame, rng.normal(size=8))]


def test_the_same_seed_and_reports_give_the_same_orders():
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_where_all_have_room_nobody_makes_way_for_one_that_takes_over():
    judge = population()
    found = [judge.report(trial, 100, float(score)) for score, trial in enumerate((2, 1, 3, 0))]
    assert [order.what for orders in found for order in orders] == []
    found = [judge.report(trial, 200, -float(score)) for score, trial in enumerate((2, 1, 3, 0))]
    whats = [order.what for orders in found for order in orders]
    assert What.COPY in whats
    assert What.PAUSE not in whats
