"""Population based training: which trial copies which, when, and with which values."""

import numpy as np
import pytest

from slm_lab.records.event_log import Copied
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.studies.search.population import Population
from slm_lab.studies.search.space import Space
from slm_lab.studies.study import Action
from tests.unit.studies.search.fake_pool import FakePool, Fault
from tests.unit.studies.search.played import (
    MAX_FRAME,
    base_once,
    events,
    run,
    score_at,
    search_of,
    statuses,
)
from tests.unit.studies.search.small import GAMMA, RATE, searched

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
    spec = PbtSpec(**{"perturbation_interval": 100, "quantile_fraction": 0.25, **args})
    scheduler = Population(spec, DIMENSIONS, max_frame, seed)
    for trial in range(size):
        scheduler.add(trial, {**START, GAMMA: 0.9 + 0.01 * trial})
    for trial in range(size if running else 0):
        scheduler.begin(trial)
    return scheduler


def reported(scheduler, frame, scores):
    """The copies after a report of each trial; there is room for all at any time."""
    decisions = []
    for trial, score in enumerate(scores):
        decisions += scheduler.report(trial, frame, score)
        scheduler.begin(trial)
    return decisions


def brief(decisions):
    return [(decision.trial, decision.what, decision.donor) for decision in decisions]


def test_the_worst_continues_from_the_best_and_the_others_as_they_are():
    assert brief(reported(population(), 100, [3.0, 9.0, 5.0, 1.0])) == [(3, "copy", 1)]
    assert reported(population(), 100, [1.0, 2.0, 3.0, 4.0]) == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_no_trial_both_copies_and_is_copied(size, fraction, seed):
    scheduler = population(
        size, seed=seed, max_frame=10_000, quantile_fraction=fraction
    )
    rng = np.random.default_rng(seed)
    known = {}
    for frame in range(100, 2000, 100):
        for trial, score in enumerate(rng.normal(size=size)):
            known[trial] = score
            for decision in scheduler.report(trial, frame, score):
                assert decision.what is Action.COPY
                assert decision.trial == trial != decision.donor
                assert known[decision.donor] > score
                del known[trial]
                scheduler.begin(trial)


def test_perturbed_values_are_those_of_the_donor_times_a_factor():
    scheduler = population(resample_probability=0.0, perturbation_factors=[0.5])
    (decision,) = reported(scheduler, 100, [3.0, 5.0, 9.0, 1.0])
    assert decision.donor == 2
    assert decision.params[RATE] == pytest.approx(0.5e-3)
    assert decision.params[GAMMA] == 0.9  # the lower bound
    assert decision.params["agent.algorithm.training_epoch"] == 2
    assert decision.params[CLIP] in (0.1, None)


def test_the_next_values_derive_from_those_that_a_trial_copied():
    scheduler = population(2, resample_probability=0.0, perturbation_factors=[0.5])
    (first,) = reported(scheduler, 100, [9.0, 1.0])
    (second,) = reported(scheduler, 200, [0.0, 9.0]) or scheduler.report(0, 300, 0.0)
    assert (second.trial, second.donor) == (0, 1)
    assert second.params[RATE] == pytest.approx(first.params[RATE] / 2)


@pytest.mark.parametrize(
    ("burn_in", "first"), [(0, 100), (70, 100), (150, 150), (250, 250)]
)
def test_nothing_is_copied_before_the_first_look(burn_in, first):
    scheduler = population(burn_in_period=burn_in)
    for frame in range(1, first, 9):
        assert reported(scheduler, frame, [4.0, 3.0, 2.0, 1.0]) == []
    assert reported(scheduler, first, [4.0, 3.0, 2.0, 1.0])
    assert reported(scheduler, first + 99, [1.0, 2.0, 3.0, 4.0]) == []
    assert reported(scheduler, first + 100, [1.0, 2.0, 3.0, 4.0])


def test_a_trial_that_copied_is_not_compared_for_an_interval():
    scheduler = population(2)
    assert scheduler.report(0, 100, 5.0) == []
    assert scheduler.report(0, 200, 6.0) == []
    assert scheduler.report(0, 400, 7.0) == []
    (decision,) = scheduler.report(1, 100, 1.0)
    assert decision.donor == 0
    scheduler.begin(1)
    # It continues from frame 400, so it is not compared before 500.
    assert scheduler.report(1, 410, 1.0) == []
    assert scheduler.report(1, 500, 1.0)


def test_nothing_is_copied_at_the_end_of_the_budget():
    scheduler = population()
    assert reported(scheduler, 1000, [4.0, 3.0, 2.0, 1.0]) == []


def test_the_trial_with_the_fewest_frames_runs_next():
    scheduler = population(running=False)
    assert scheduler.choose([0, 1, 2, 3]) == 0
    for trial, frame in ((0, 80), (1, 50), (2, 50), (3, 60)):
        scheduler.begin(trial)
        scheduler.report(trial, frame, 1.0)
    assert scheduler.choose([0, 1, 2, 3]) == 1
    assert scheduler.choose([0, 2, 3]) == 2
    assert scheduler.choose([0, 3]) == 3
    assert scheduler.choose([]) is None


def test_a_trial_that_copied_has_the_frame_of_its_donor():
    scheduler = population(2)
    scheduler.report(0, 100, 5.0)
    scheduler.report(0, 300, 5.0)
    scheduler.report(1, 100, 1.0)
    assert scheduler.choose([0, 1]) == 0  # both at 300


def turns(scheduler, frame, scores):
    """Each trial runs in turn: the decisions after its report, by trial."""
    found = {}
    for trial, score in scores.items():
        scheduler.begin(trial)
        found[trial] = scheduler.report(trial, frame, score)
    return found


def test_a_round_of_turns_is_compared_when_all_have_reported():
    scheduler = population(running=False)
    found = turns(scheduler, 100, {0: 5.0, 1: 0.0, 2: 9.0})
    assert [brief(found[trial]) for trial in range(3)] == [
        [(t, "pause", -1)] for t in range(3)
    ]
    assert scheduler.choose([0, 1, 2]) is None
    assert scheduler.choose([0, 1, 2, 3]) == 3
    scheduler.begin(3)
    assert brief(scheduler.report(3, 100, 3.0)) == [(1, "copy", 2)]
    assert scheduler.choose([0, 1, 2]) == 0
    # In the next round the scores of this one count no more.
    found = turns(scheduler, 200, {3: 7.0, 0: 8.0, 1: 6.0, 2: 4.0})
    assert brief(found[2]) == [(2, "copy", 0)]


@pytest.mark.parametrize(
    ("scores", "decisions"),
    [
        ((1.0, 9.0, 5.0), [(0, "copy", 1)]),  # it continues
        # it saves what is copied
        ((1.0, 5.0, 9.0), [(2, "pause", -1), (0, "copy", 2)]),
        ((9.0, 5.0, 1.0), [(2, "copy", 0)]),  # it is the one that copies
    ],
)
def test_the_last_of_a_round_continues_saves_or_copies(scores, decisions):
    found = turns(population(3, running=False), 100, dict(enumerate(scores)))
    assert brief(found[2]) == decisions


def test_a_round_ends_when_the_last_missing_trial_ends():
    scheduler = population(3, running=False)
    turns(scheduler, 100, {0: 9.0, 1: 5.0})
    scheduler.begin(2)
    assert brief(scheduler.end(2)) == [(1, "copy", 0)]
    assert scheduler.choose([0, 1]) == 0


def test_no_running_trial_is_compared_before_all_have_a_score():
    scheduler = population()
    assert [scheduler.report(trial, 100, -trial) for trial in (0, 2, 1)] == [[], [], []]
    assert brief(scheduler.report(3, 100, -3.0)) == [(3, "copy", 0)]


def test_no_trial_copies_untried_values():
    scheduler = population(2)
    reported(scheduler, 100, [9.0, 1.0])
    # the other one has its weights, and other values
    assert scheduler.report(0, 200, 0.0) == []


def test_an_ended_trial_is_neither_copied_nor_chosen():
    scheduler = population()
    reported(scheduler, 100, [3.0, 4.0, 5.0, 9.0])
    scheduler.end(3)
    assert scheduler.choose([3]) is None
    assert scheduler.report(3, 300, 9.0) == []
    (decision,) = scheduler.report(0, 200, 3.0)
    assert decision.donor == 2
    scheduler.end(3)


def test_all_trials_are_proposed_before_the_first_begins():
    assert population().needs_all


def decisions_of(seed):
    scheduler = population(8, seed=seed, max_frame=10_000)
    rng = np.random.default_rng(0)
    frames = range(100, 1500, 100)
    return [
        decision
        for frame in frames
        for decision in reported(scheduler, frame, rng.normal(size=8))
    ]


def test_the_same_seed_and_reports_give_the_same_decisions():
    assert decisions_of(1) == decisions_of(1)
    assert decisions_of(1) != decisions_of(2)


def test_no_trial_pauses_for_a_copy_if_all_fit():
    scheduler = population()
    found = [
        scheduler.report(trial, 100, float(score))
        for score, trial in enumerate((2, 1, 3, 0))
    ]
    assert [decision.what for decisions in found for decision in decisions] == []
    found = [
        scheduler.report(trial, 200, -float(score))
        for score, trial in enumerate((2, 1, 3, 0))
    ]
    whats = [decision.what for decisions in found for decision in decisions]
    assert Action.COPY in whats
    assert Action.PAUSE not in whats


@pytest.mark.parametrize("faulty", [(), (0,), (3,), (1, 2)])
@pytest.mark.parametrize("cpus", [1, 2, 3, 4])
@pytest.mark.usefixtures("quickly")
def test_in_a_search_all_trials_end_with_any_number_of_slots(run_dir, cpus, faulty):
    spec = PbtSpec(perturbation_interval=200)
    scheduler = Population(spec, Space(base_once({})).dimensions, MAX_FRAME, 1)
    faults = {trial: Fault(300, 9, would_repeat=True) for trial in faulty}
    search = run(
        search_of(run_dir, scheduler=scheduler, pool=FakePool(score_at, cpus, faults))
    )
    ends = {trial: "failed" if trial in faulty else "finished" for trial in range(4)}
    assert statuses(search) == ends
    assert cpus == 4 or events(run_dir, Copied)
