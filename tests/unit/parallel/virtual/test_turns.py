"""Turns of workers by their virtual clocks."""

import threading
from functools import partial

import numpy as np
import pytest

from slm_lab.parallel.virtual.costs import COLD, Draws, MeasuredPace, levels
from slm_lab.parallel.virtual.turns import Turns, TurnsMemory

PATIENCE = 60.0


def together(num_workers, work, is_alive=lambda worker: True):
    """Runs `work(worker, turns)` in a thread for each worker."""
    memory = TurnsMemory.of(num_workers)
    failures = []

    def run(worker):
        try:
            work(worker, Turns(memory, worker, is_alive))
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=partial(run, worker), daemon=True)
        for worker in range(num_workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a worker waits for ever"
    assert not failures
    return memory


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_events_of_all_workers_happen_in_the_order_of_their_clocks(num_workers):
    costs = np.random.default_rng(0).integers(1, 100, (num_workers, 50))
    events = []

    def work(worker, turns):
        turns.join(0)
        turns.take()
        for cost in costs[worker]:
            events.append((turns.clock, worker))
            turns.advance(cost)
        turns.end()

    memory = together(num_workers, work)
    assert events == sorted(events)
    assert len(events) == num_workers * 50
    assert (memory.clocks.numpy() == costs.sum(1)).all()


def test_workers_with_equal_clocks_go_by_their_numbers():
    events = []

    def work(worker, turns):
        turns.join(0)
        turns.take()
        for _ in range(5):
            events.append(worker)
            turns.advance(1)
        turns.end()

    together(3, work)
    assert events == [0, 1, 2] * 5


def test_a_meeting_comes_after_all_that_lies_before_it():
    """Worker w does w + 1 things before the meeting; nothing of after comes before."""
    events = []

    def work(worker, turns):
        turns.join(0)
        turns.take()
        for _ in range(worker + 1):
            events.append("before")
            turns.advance(1)
        wish = turns.meet(wish=10 * worker)
        turns.take()
        events.append(("after", wish, worker))
        turns.end()

    together(3, work)
    assert events[:6] == ["before"] * 6
    assert events[6:] == [("after", 20, worker) for worker in range(3)]


def test_a_worker_that_died_holds_nobody_up():
    events = []
    dead = set()

    def work(worker, turns):
        turns.join(0)
        turns.take()
        if worker == 0:
            dead.add(0)  # in the middle of its turn
            return
        for _ in range(3):
            events.append(worker)
            turns.advance(1)
        turns.meet()
        turns.end()

    together(3, work, is_alive=lambda worker: worker not in dead)
    assert events == [1, 2] * 3


def test_a_worker_that_comes_late_begins_at_the_lowest_clock():
    memory = TurnsMemory.of(2)
    alive = {0}
    first = Turns(memory, 0, lambda worker: worker in alive)
    first.join(0)
    first.advance(5)
    first.meet()
    memory.states[1] = 3  # the first process of worker 1 has died
    late = Turns(memory, 1, lambda worker: worker in alive)
    late.join(0)
    assert late.clock == 5


def test_nobody_waits_once_the_user_stops():
    memory = TurnsMemory.of(2)
    turns = Turns(memory, 0, lambda worker: True, is_stopping=lambda: True)
    turns.join(0)
    turns.advance(1)
    turns.meet()
    turns.end()


def test_levels_have_the_mean_of_what_was_measured():
    stretches = np.random.default_rng(0).pareto(2.0, 1000)
    assert np.mean(levels(stretches)) == pytest.approx(stretches.mean(), rel=1e-3)
    assert np.mean(levels(stretches[:37])) == pytest.approx(
        stretches[:37].mean(), rel=1e-3
    )
    assert levels([2.0, 1.0]) == [1.0, 2.0]


def test_draws_depend_on_the_seed_and_their_number_alone():
    costs = {"step": [1.0, 2.0, 3.0], "acting": [0.5, 0.25]}
    first = Draws(costs, seed=1)
    drawn = [(first.draw("step"), first.draw("acting")) for _ in range(9000)]
    again = Draws(costs, seed=1)
    again.counts = {"step": 5000, "acting": 5000}
    assert [(again.draw("step"), again.draw("acting")) for _ in range(10)] == (
        drawn[5000:5010]
    )
    assert {step for step, _ in drawn} == {1.0, 2.0, 3.0}
    assert np.mean([step for step, _ in drawn]) == pytest.approx(2.0, abs=0.05)
    assert first.draw("an unknown kind") == 0.0
    other = Draws(costs, seed=2)
    assert [other.draw("step") for _ in range(20)] != [step for step, _ in drawn[:20]]


def test_a_measured_pace_keeps_the_stretches_without_the_first_ones():
    pace = MeasuredPace()
    for number in range(4 * COLD):
        pace.add("step", 100.0 if number < COLD else 1.0)
    pace.add("rare", 2.0)
    assert {*pace.costs["step"]} == {1.0}
    assert pace.costs["rare"] == [2.0]
    assert pace.seconds["step"] == 100.0 * COLD + 3 * COLD
