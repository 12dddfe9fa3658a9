"""Population based training: which trial copies which, when, and with which values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.records.event_log import Copied
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.studies.search.population import Population
from slm_lab.studies.search.scheduler import Intervention
from slm_lab.studies.search.space import Space
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
from tests.unit.studies.search.small import GAMMA, RATE, assert_drawn, searched

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
                assert decision.what is Intervention.COPY
                assert decision.trial == trial != decision.donor
                assert known[decision.donor] > score
                del known[trial]
                scheduler.begin(trial)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_values_stay_within_their_bounds_and_types(seed, probability):
    scheduler = population(
        seed=seed, max_frame=10_000, resample_probability=probability
    )
    for frame in range(100, 1500, 100):
        for decision in reported(scheduler, frame, [1.0, 2.0, 3.0, 0.0]):
            assert list(decision.params) == [each.path for each in DIMENSIONS]
            for each in DIMENSIONS:
                assert_drawn(each, decision.params[each.path])


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


def test_a_trial_is_looked_at_once_an_interval():
    scheduler = population()
    assert reported(scheduler, 100, [1.0, 2.0, 3.0, 4.0]) == []
    for frame in (101, 150, 199):
        assert reported(scheduler, frame, [0.0, 0.0, 0.0, -9.0]) == []
    assert reported(scheduler, 200, [1.0, 2.0, 3.0, -9.0])


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


def test_trials_take_turns_if_not_all_fit():
    scheduler = population(3, running=False)
    scheduler.begin(0)
    (decision,) = scheduler.report(0, 100, 1.0)
    assert (decision.trial, decision.what) == (0, Intervention.PAUSE)
    assert scheduler.choose([0, 1, 2]) == 1


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


def test_a_trial_that_ended_is_not_compared():
    scheduler = population(3, running=False)
    turns(scheduler, 100, {0: 1.0, 1: 5.0})
    assert scheduler.end(0) == []
    assert brief(turns(scheduler, 100, {2: 9.0})[2]) == [
        (2, "pause", -1),
        (1, "copy", 2),
    ]


def test_no_running_trial_is_compared_before_all_have_a_score():
    scheduler = population()
    assert [scheduler.report(trial, 100, -trial) for trial in (0, 2, 1)] == [[], [], []]
    assert brief(scheduler.report(3, 100, -3.0)) == [(3, "copy", 0)]


def test_no_trial_copies_untried_values():
    scheduler = population(2)
    reported(scheduler, 100, [9.0, 1.0])
    # the other one has its weights, and other values
    assert scheduler.report(0, 200, 0.0) == []


def test_running_trials_take_no_turns_if_all_fit():
    scheduler = population(3)
    assert scheduler.report(0, 100, 1.0) == []


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
    assert Intervention.COPY in whats
    assert Intervention.PAUSE not in whats


class Played:
    """A search with room for `slots` trials; a randomly drawn one advances a little."""

    def __init__(self, size, slots, seed, *, mishaps=True, length=100, **args):
        self.rng = np.random.default_rng(seed)
        self.slots = slots
        self.mishaps = mishaps
        self.length = length
        self.new = lambda: population(0, running=False, **args)
        self.scheduler = self.new()
        self.calls = []
        self.given = []
        self.state = dict.fromkeys(range(size), "waiting")
        self.frame = dict.fromkeys(range(size), 0)
        self.score = {}
        self.decisions = {}
        self.since = set()
        self.copies = 0
        for trial in range(size):
            self.call("add", trial, START)

    def call(self, name, *args):
        self.calls.append((name, args))
        self.given.append(getattr(self.scheduler, name)(*args) or [])
        takers = [
            decision
            for decision in self.given[-1]
            if decision.what is Intervention.COPY
        ]
        if takers and len(self.alive) > self.slots:
            self.check_round(takers, args[0])
        for decision in self.given[-1]:
            self.decisions[decision.trial] = decision
            if self.state[decision.trial] == "waiting":
                self.carry_out(decision.trial)

    def check_round(self, takers, last):
        """All others wait by now, and are compared by their scores of this round."""
        running = [trial for trial in self.of("running") if trial not in self.decisions]
        assert running in ([], [last])
        assert self.since >= set(self.alive)
        rank = sorted(self.alive, key=lambda t: (self.score[t], t))
        assert [decision.trial for decision in takers] == rank[: len(takers)]
        assert {decision.donor for decision in takers} <= set(rank[-len(takers) :])
        self.copies += len(takers)
        self.since = set()

    def carry_out(self, trial):
        decision = self.decisions.pop(trial)
        self.state[trial] = "waiting"
        if decision.what is Intervention.COPY:
            self.frame[trial] = self.frame[decision.donor]

    @property
    def alive(self):
        return [trial for trial, state in self.state.items() if state != "over"]

    def of(self, state):
        return [trial for trial in self.state if self.state[trial] == state]

    def fill(self):
        while len(self.of("running")) < self.slots:
            chosen = next(iter(self.of("again")), None)
            chosen = (
                self.scheduler.choose(self.of("waiting")) if chosen is None else chosen
            )
            if chosen is None:
                return
            self.state[chosen] = "running"
            self.call("begin", chosen)

    def resume(self):
        """Running trials are interrupted; a fresh scheduler gets the same calls."""
        self.scheduler = self.new()
        calls = self.calls
        assert [
            getattr(self.scheduler, name)(*args) or [] for name, args in calls
        ] == self.given
        for trial in self.of("running"):
            self.state[trial] = "again"
        for trial in list(self.decisions):
            self.carry_out(trial)

    def step(self, trial):
        luck = 1.0
        if self.mishaps:
            luck = self.rng.random()
        if luck < 0.02 or (self.frame[trial] >= 1000 and luck > 0.1):
            self.state[trial] = "over"
            self.decisions.pop(trial, None)
            self.call("end", trial)
        elif trial in self.decisions:
            self.carry_out(trial)
        elif luck < 0.05:
            self.state[trial] = "again"
        elif luck < 0.08:
            self.resume()
        else:
            self.frame[trial] += self.length
            self.score[trial] = float(self.rng.normal())
            self.since.add(trial)
            self.call("report", trial, self.frame[trial], self.score[trial])

    def run(self):
        while self.alive:
            self.fill()
            assert self.of("running"), "all wait for one another"
            self.step(self.rng.choice(self.of("running")))
        return self


@pytest.mark.medium
@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(0, 2**32),
    st.sampled_from([30, 50, 100, 130]),
    st.sampled_from([0.1, 0.25, 0.5]),
)
def test_a_population_ends_whatever_happens_to_its_trials(
    size, slots, seed, length, fraction
):
    Played(size, slots, seed, length=length, quantile_fraction=fraction).run().resume()


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize(("fraction", "takers"), [(0.1, 1), (0.25, 2), (0.5, 3)])
def test_the_worst_of_every_round_copy_a_better_trial(slots, fraction, takers):
    played = Played(6, slots, slots, mishaps=False, quantile_fraction=fraction)
    while all(frame < 900 for frame in played.frame.values()):
        played.fill()
        played.step(played.rng.choice(played.of("running")))
    # At 100, 200, …; a late copy may find its donor a round ahead.
    assert played.copies in (8 * takers, 7 * takers)


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
