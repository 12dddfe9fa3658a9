"""How long both ends of the queue between actors and a learner wait, and for what."""

import numpy as np
import pytest

from slm_lab.core.errors import PeerLostError
from slm_lab.parallel import wait
from slm_lab.parallel.actor_learner import queue as queue_module
from slm_lab.session.status_board import Phase
from tests.unit.parallel.actor_learner.queues import SLOTS, Lab


class Time:
    """A clock that moves only while a process sleeps or computes; others act during a
    sleep."""

    def __init__(self):
        self.now = self.cpu = 0.0
        self.meanwhile = lambda: None

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.cpu

    def sleep(self, seconds):
        self.now += 1.0
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch):
    time = Time()
    for module in (queue_module, wait):
        monkeypatch.setattr(module, "time", time)
    return time


def test_an_actor_waits_for_room_until_the_oldest_unroll_is_given_back(clock):
    lab = Lab()
    lab.hand_over_all()
    oldest = lab.learner.receive(0.0)[1]
    clock.meanwhile = lambda: lab.learner.give_back(0) if clock.now == 5 else None
    assert np.shares_memory(lab.actors[0].next_slot().obs, oldest.obs)
    assert clock.now == 5
    assert lab.learner.seconds[:2] == (5.0, 2.0)


def test_a_full_queue_reports_a_spent_budget_at_once(clock):
    lab = Lab(max_unrolls=SLOTS)
    lab.hand_over_all()
    assert lab.actors[0].next_slot() is None
    assert clock.now == 0


def test_a_replacement_actor_waits_while_the_learner_holds_its_slots(clock):
    lab = Lab()
    lab.hand_over_all()
    assert [lab.learner.receive(0.0)[0] for _ in range(SLOTS)] == [0] * SLOTS
    lab.actors[0] = lab.begun(0)
    clock.meanwhile = lambda: lab.learner.give_back(0) if clock.now == 3 else None
    assert lab.actors[0].next_slot() is not None
    assert clock.now == 3


def test_the_seconds_of_dead_actors_count_without_their_startup(clock):
    lab = Lab()
    for spent in (3.0, 2.0):
        clock.cpu = 50.0  # imports, environments, networks
        lab.actors[0].next_slot()
        clock.cpu += spent
        lab.actors[0].hand_over(1.0)
        assert lab.learner.receive(0.0)[0] == 0
        lab.learner.give_back(0)
        lab.actors[0] = lab.begun(0)
    assert lab.learner.seconds.cpu_t == 5.0
    assert lab.learner.seconds[:2] == (0.0, 2.0)


def test_waiting_for_inference_counts_as_waiting_and_not_as_acting(clock):
    lab = Lab()
    for answered_at in (2.0, 5.0):
        lab.actors[0].next_slot()
        wait_for_answer(lab, clock, answered_at)
        lab.actors[0].hand_over(10.0)
    assert lab.learner.seconds[:2] == (5.0, 15.0)


def wait_for_answer(lab, clock, answered_at):
    """As the client of central inference does."""
    assert lab.actors[0]._wait(lambda: clock.now >= answered_at, 0.0)


def test_an_actor_books_its_wait_while_it_waits(clock, monkeypatch):
    """A row written during the wait then includes it."""
    lab = Lab()
    wait = wait_for_room(lab)
    booked = []
    clock.meanwhile = lambda: booked.append(lab.learner.seconds.waited)
    monkeypatch.setattr(queue_module, "LONGEST_SECONDS", 20.0)
    with pytest.raises(PeerLostError):
        wait()
    assert booked[10:13] == [booked[10], booked[10] + 1, booked[10] + 2]


def wait_for_room(lab):
    lab.hand_over_all()
    return lab.actors[0].next_slot


def wait_for_weights(lab):
    return lab.actors[0].wait_for_weights


@pytest.mark.parametrize("wait", [wait_for_room, wait_for_weights])
def test_an_actor_gives_up_on_an_idle_learner_after_a_timeout(clock, wait, monkeypatch):
    monkeypatch.setattr(queue_module, "LONGEST_SECONDS", 5000.0)
    with pytest.raises(
        PeerLostError, match="actor 0: the learner did not respond within 5000 s"
    ):
        wait(Lab())()
    assert clock.now == 5000


@pytest.mark.parametrize("end", ["learner", "user"])
@pytest.mark.parametrize("wait", [wait_for_room, wait_for_weights])
def test_a_wait_ends_when_no_more_steps_are_needed(clock, wait, end):
    lab = Lab()
    act = wait(lab)
    stop = lab.status_board.request_stop
    if end == "learner":
        stop = lab.learner.end
    clock.meanwhile = lambda: clock.now == 2 and stop()
    assert not act()
    assert clock.now == 2
    assert lab.actors[0].is_over


def test_unrolls_begun_before_the_end_are_not_waited_for(clock):
    lab = Lab(actors=1)
    lab.hand_over_all()
    clock.meanwhile = lab.learner.end
    assert lab.actors[0].next_slot() is None
    lab.over(0, Phase.DONE)
    for _ in range(SLOTS):
        assert not lab.learner.is_exhausted
        assert lab.learner.receive(0.0) is not None
    assert lab.learner.is_exhausted


def test_the_learner_stops_waiting_after_the_given_time(clock):
    assert Lab().learner.receive(10.0) is None
    assert clock.now == 10
