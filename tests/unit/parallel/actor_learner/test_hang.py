"""What a Trial's parent sees of actors: who hangs, and who is lost."""

import numpy as np
import pytest
import torch

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.parallel import hang_detector as silence
from slm_lab.parallel.actor_learner import launch as actor_learner
from slm_lab.parallel.actor_learner.launch import LEAVE_SECONDS, Watch
from slm_lab.parallel.actor_learner.queue import (
    HANG_SECONDS,
    PATIENCE_SECONDS,
    LearnerQueue,
    UnrollQueue,
)
from slm_lab.parallel.actor_learner.unroll import UnrollLayout
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.processes import SPAWN
from slm_lab.session.status_board import Phase, StatusBoard

ACTORS, SLOTS = 2, 2
ALL = [True] * ACTORS
LONG = HANG_SECONDS + 1


class Watched:
    """Actors that run, on a clock that only moves when it is told to."""

    def __init__(self):
        self.now = 50.0
        layout = UnrollLayout(
            MemoryLayout(1, 1, (1,), np.dtype(np.float32), (), np.dtype(np.int64)), 0
        )
        self.queue = UnrollQueue(
            layout=layout,
            slots=torch.zeros((ACTORS, SLOTS, layout.num_bytes), dtype=torch.uint8),
            counts=torch.zeros((3, ACTORS), dtype=torch.int64),
            seconds=torch.zeros((3, ACTORS), dtype=torch.float64),
            weights=WeightStore.of({}, 0),
            requests=None,
            flags=torch.zeros(2, dtype=torch.int64),
            lost=torch.zeros(ACTORS, dtype=torch.int64),
            max_unrolls=100,
        )
        self.board = StatusBoard.allocate(SPAWN, 1 + ACTORS)
        for session in range(1 + ACTORS):
            self.board.write(session, phase=Phase.RUNNING)

    def monotonic(self):
        return self.now

    def be(self, actor, phase, restarts=0):
        self.board.write(1 + actor, phase=phase, restarts=restarts)

    def step(self, *actors):
        for actor in actors:
            self.board.clock_slots[1 + actor] += 1


@pytest.fixture
def watched(monkeypatch):
    watched = Watched()
    for module in (actor_learner, silence):
        monkeypatch.setattr(module, "time", watched)
    return watched


@pytest.fixture
def watch(watched):
    watch = Watch(watched.board, watched.queue)

    def after(seconds, alive=ALL):
        """The actors that are said to hang after so long."""
        watched.now += seconds
        return [actor for actor, _ in watch.tick(alive)]

    return after


def test_an_actor_whose_step_does_not_end_hangs_and_one_that_steps_does_not(watched, watch):
    assert watch(1) == []
    watched.step(0, 1)
    assert watch(LONG) == []
    watched.step(1)
    assert watch(LONG - 2) == []
    assert watch(3) == [0]


def test_an_actor_that_has_no_room_waits_for_the_learner_and_does_not_hang(watched, watch):
    watched.queue.counts[1, 0] = SLOTS  # handed over
    assert watch(0) == []
    assert watch(LONG) == [1]
    watched.queue.counts[2, 0] = 1  # given back
    watched.step(1)
    assert watch(0) == []
    watched.step(1)
    assert watch(LONG) == [0]


def test_waiting_does_not_count_once_there_is_room(watched, watch):
    watched.queue.counts[1] = SLOTS
    watch(LONG)
    watched.queue.counts[2] = 1
    assert watch(LONG - 2) == []


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.READY, Phase.DONE, Phase.STOPPED])
def test_who_has_nothing_to_do_does_not_hang(watched, watch, phase):
    watched.be(0, phase)
    watched.be(1, phase)
    watch(0)
    assert watch(LONG) == []


def test_a_start_that_does_not_end_hangs_too(watched, watch):
    watched.be(0, Phase.STARTING)
    watched.step(1)
    watch(0)
    watched.step(1)
    assert watch(LONG) == [0]


def test_one_that_was_begun_anew_has_all_its_time(watched, watch):
    watch(0)
    watched.be(0, Phase.WAITING, restarts=1)
    watched.step(1)
    watch(LONG - 2)
    watched.be(0, Phase.STARTING, restarts=1)
    watched.step(1)
    assert watch(LONG - 2) == []
    watched.be(0, Phase.RUNNING, restarts=1)
    watched.step(1)
    assert watch(LONG - 2) == []
    watched.step(1)
    assert watch(LONG) == [0]


def test_when_the_learner_has_ended_actors_have_little_time_to_leave(watched, watch):
    watched.be(1, Phase.DONE)
    LearnerQueue(watched.queue, watched.board).end()
    assert watch(0) == []
    assert watch(LEAVE_SECONDS - 1) == []
    watched.step(0)
    assert watch(2) == [0]


def test_after_a_stop_it_is_for_others_to_say_who_is_late(watched, watch):
    watched.board.request_stop()
    LearnerQueue(watched.queue, watched.board).end()
    assert watch(0) == []
    assert watch(2 * LEAVE_SECONDS) == []


@pytest.fixture
def learner_hangs(watched):
    """Whether the learner is said to hang after so many seconds."""
    watch = Watch(watched.board, watched.queue)

    def after(seconds):
        watched.now += seconds
        return watch.learner_hangs()

    return after


def fill_a_ring(watched):
    watched.queue.counts[1, 0] = watched.queue.counts[2, 0] + SLOTS


def test_a_learner_that_learns_nothing_while_an_actor_waits_for_it_hangs(watched, learner_hangs):
    fill_a_ring(watched)
    assert not learner_hangs(0)
    assert not learner_hangs(PATIENCE_SECONDS - 1)
    watched.board.clock_slots[0] += 1
    assert not learner_hangs(2)
    assert not learner_hangs(PATIENCE_SECONDS - 1)
    watched.queue.counts[1:, 0] += 1  # one was given back, and filled again
    assert not learner_hangs(2)
    assert learner_hangs(PATIENCE_SECONDS + 1)


@pytest.mark.parametrize("occasion", ["nobody waits", "it stands aside", "it is starting"])
def test_a_learner_of_which_nothing_is_due_does_not_hang(watched, learner_hangs, occasion):
    if occasion != "nobody waits":
        fill_a_ring(watched)
    watched.queue.flags[1] = occasion == "it stands aside"
    if occasion == "it is starting":
        watched.board.write(0, phase=Phase.STARTING)
    assert not learner_hangs(0)
    assert not learner_hangs(2 * PATIENCE_SECONDS)


def lost(watched):
    return watched.queue.lost.tolist()


def test_an_actor_that_failed_is_lost_when_its_process_is_gone_and_no_other_was_begun(
    watched, watch
):
    watched.be(0, Phase.FAILED)  # as it says itself, before it is gone
    for _ in range(3):
        watch(1)
        assert lost(watched) == [0, 0]
    for expected in (0, 1, 1):
        watch(1, [False, True])
        assert lost(watched) == [expected, 0]


def test_one_that_is_begun_anew_is_not_lost(watched, watch):
    for restarts in range(3):
        watched.be(0, Phase.FAILED, restarts)
        watch(1, [False, True])  # its end has not been looked at
        watched.be(0, Phase.WAITING, restarts + 1)
        watch(1, [False, True])
        watched.be(0, Phase.STARTING, restarts + 1)
        watch(1)
    assert lost(watched) == [0, 0]


def test_one_that_fails_again_between_two_looks_is_not_lost_before_its_end_was_looked_at(
    watched, watch
):
    watched.be(0, Phase.FAILED, restarts=0)
    watch(1, [False, True])
    watched.be(0, Phase.FAILED, restarts=1)
    watch(1, [False, True])
    assert lost(watched) == [0, 0]
    watch(1, [False, True])
    assert lost(watched) == [1, 0]


def test_who_has_come_to_an_end_is_not_lost(watched, watch):
    for phase in (Phase.DONE, Phase.STOPPED):
        watched.be(0, phase)
        watch(1, [False, True])
        watch(1, [False, True])
    assert lost(watched) == [0, 0]
