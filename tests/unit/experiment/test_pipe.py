"""Both ends of the pipe between actors and a learner: what one hands over the other gets, once."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.unroll import UnrollLayout
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.errors import PeerLostError
from slm_lab.experiment import pipe as pipe_module
from slm_lab.experiment.launch.processes import SPAWN
from slm_lab.experiment.pipe import (
    ACTOR_SECONDS,
    HANG_SECONDS,
    ActorEnd,
    LearnerEnd,
    Pipe,
    slots_per_actor,
)
from slm_lab.experiment.progress import Board, Phase
from slm_lab.spec.schema.meta import ActorLearnerSpec, MetaSpec

ACTORS, SLOTS = 3, 2
STEPS = MemoryLayout(2, 2, (3,), np.dtype(np.float32), (), np.dtype(np.int64))


class Time:
    """A clock that only moves when somebody naps, or computes; a nap is when others act."""

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
    monkeypatch.setattr(pipe_module, "time", time)
    return time


class Lab:
    """A pipe with its board, and the processes at its ends."""

    def __init__(self, actors=ACTORS, slots=SLOTS, max_unrolls=1000):
        layout = UnrollLayout(STEPS, 0)
        self.pipe = Pipe(
            layout=layout,
            slots=torch.zeros((actors, slots, layout.num_bytes), dtype=torch.uint8),
            counts=torch.zeros((3, actors), dtype=torch.int64),
            seconds=torch.zeros((3, actors), dtype=torch.float64),
            weights=Publication.of({}, 0),
            requests=None,
            flags=torch.zeros(2, dtype=torch.int64),
            lost=torch.zeros(actors, dtype=torch.int64),
            max_unrolls=max_unrolls,
        )
        self.board = Board.allocate(SPAWN, 1 + actors)
        self.learner = LearnerEnd(self.pipe, self.board)
        self.actors = [self.begun(actor) for actor in range(actors)]

    def begun(self, actor):
        """A process of an actor, the first or the next one."""
        end = ActorEnd(self.pipe, self.board, actor)
        self.board.write(1 + actor, phase=Phase.RUNNING)
        return end

    def over(self, actor, phase):
        self.board.write(1 + actor, phase=phase)

    def hand_over(self, actor, at=0.0):
        """A whole unroll."""
        unroll = self.actors[actor].next_slot()
        unroll.head[-1] = at  # `handed_at`
        self.actors[actor].hand_over(1.0)
        return unroll

    def hand_over_all(self):
        """As many as an actor may."""
        for number in range(SLOTS):
            self.hand_over(0, number)


def stamp(unroll, number):
    """Writes the number all over an unroll."""
    unroll.obs[:] = unroll.reward[:] = unroll.action[:] = unroll.head[:] = number


def number_in(unroll):
    """What was written all over it; fails where that differs from place to place."""
    arrays = (unroll.obs, unroll.reward, unroll.action, unroll.head)
    (number,) = {float(number) for array in arrays for number in np.unique(array)}
    return int(number)


class Model:
    """Random acts at both ends, as lists know them to be right."""

    def __init__(self, max_unrolls=1000):
        self.lab = Lab(max_unrolls=max_unrolls)
        self.open = [None] * ACTORS  # what each is filling
        self.waiting = []  # numbers of those handed over, the oldest first, with their actor
        self.held = [[] for _ in range(ACTORS)]  # what the learner has of each
        self.handed = 0

    def act(self, what, actor):
        getattr(self, what)(actor)
        for each, held in enumerate(self.held):
            assert [number_in(unroll) for _, unroll in held] == [number for number, _ in held]
            assert self.out(each) <= SLOTS

    def out(self, actor):
        waiting = [number for number, of in self.waiting if of == actor]
        return len(waiting) + len(self.held[actor]) + (self.open[actor] is not None)

    def begin(self, actor):
        if self.open[actor] is None and self.out(actor) < SLOTS:
            self.open[actor] = self.lab.actors[actor].next_slot()
            if self.open[actor] is not None:
                stamp(self.open[actor], -1)

    def finish(self, actor):
        unroll, self.open[actor] = self.open[actor], None
        if unroll is not None:
            self.handed += 1
            stamp(unroll, self.handed)
            self.lab.actors[actor].hand_over(0.0)
            self.waiting.append((self.handed, actor))

    def die(self, actor):
        """With an unroll half full, maybe; the next one goes on in the same slot."""
        self.lab.over(actor, Phase.FAILED)
        half_full, self.open[actor] = self.open[actor], None
        self.lab.actors[actor] = self.lab.begun(actor)
        if half_full is not None:
            self.begin(actor)
            unroll = self.open[actor]
            assert unroll is not None
            assert np.shares_memory(unroll.obs, half_full.obs)

    def receive(self, _):
        received = self.lab.learner.receive(0.0)
        assert (received is None) == (not self.waiting)
        if received is not None:
            actor, unroll = received
            number = number_in(unroll)
            assert (number, actor) == self.waiting.pop(0)
            self.held[actor].append((number, unroll))

    def give_back(self, actor):
        if self.held[actor]:
            self.held[actor].pop(0)
            self.lab.learner.give_back(actor)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "finish", "finish", "die", "receive", "receive", "give_back"]),
        st.integers(0, ACTORS - 1),
    ),
    min_size=20,
    max_size=120,
)


@given(acts=ACTS)
def test_unrolls_arrive_once_the_oldest_first_and_stay_as_they_are_while_the_learner_has_them(acts):
    model = Model()
    for what, actor in acts:
        model.act(what, actor)
    for _ in list(model.waiting):
        model.act("receive", 0)
    assert model.lab.learner.receive(0.0) is None


@given(acts=ACTS, max_unrolls=st.integers(0, 12))
def test_the_budget_is_never_exceeded_and_met_if_all_go_on(acts, max_unrolls):
    model = Model(max_unrolls)
    for what, actor in acts:
        model.act(what, actor)
        assert model.handed + sum(unroll is not None for unroll in model.open) <= max_unrolls
    for _ in range(max_unrolls):
        for actor in range(ACTORS):
            for what in ("begin", "finish", "receive", "give_back"):
                model.act(what, actor)
    assert model.handed == max_unrolls
    assert [end.next_slot() for end in model.lab.actors] == [None] * ACTORS


def test_ends_in_threads_lose_nothing_and_overwrite_nothing():
    """As fast as they can; a switch of threads may come between any two steps."""
    count = 400
    lab = Lab(max_unrolls=count)
    errors, got = [], [[] for _ in range(ACTORS)]

    def play(actor):
        end, number = lab.actors[actor], 0
        while (unroll := end.next_slot()) is not None:
            stamp(unroll, -1)
            number += 1
            stamp(unroll, number)
            end.hand_over(0.0)
        lab.over(actor, Phase.DONE)

    def learn():
        try:
            while not lab.learner.nothing_comes:
                received = lab.learner.receive(0.01)
                if received is not None:
                    actor, unroll = received
                    before = number_in(unroll)
                    got[actor].append(before)
                    assert number_in(unroll) == before
                    lab.learner.give_back(actor)
        except BaseException as error:
            errors.append(error)
            lab.learner.end()

    threads = [threading.Thread(target=play, args=(actor,)) for actor in range(ACTORS)]
    threads.append(threading.Thread(target=learn))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert errors == []
    assert got == [list(range(1, len(numbers) + 1)) for numbers in got]
    assert count <= sum(map(len, got)) < count + ACTORS


def test_the_oldest_of_all_actors_is_received_first():
    lab = Lab()
    for actor, at in ((1, 5.0), (0, 7.0), (2, 6.0), (2, 8.0), (1, 9.0)):
        lab.hand_over(actor, at)
    assert [lab.learner.receive(0.0)[0] for _ in range(5)] == [1, 2, 0, 2, 1]


def test_an_actor_waits_for_room_until_the_oldest_unroll_is_given_back(clock):
    lab = Lab()
    lab.hand_over_all()
    oldest = lab.learner.receive(0.0)[1]
    clock.meanwhile = lambda: lab.learner.give_back(0) if clock.now == 5 else None
    assert np.shares_memory(lab.actors[0].next_slot().obs, oldest.obs)
    assert clock.now == 5
    assert lab.learner.waited == (5.0, 2.0)


def test_who_has_spent_the_budget_is_told_at_once_even_if_there_is_no_room(clock):
    lab = Lab(max_unrolls=SLOTS)
    lab.hand_over_all()
    assert lab.actors[0].next_slot() is None
    assert clock.now == 0


def test_a_budget_that_is_spent_before_it_begins_wants_no_unroll():
    assert [end.next_slot() for end in Lab(max_unrolls=0).actors] == [None] * ACTORS


def test_of_an_actor_that_died_on_the_way_others_may_play_the_unroll():
    lab = Lab(actors=2, max_unrolls=1)
    assert lab.actors[0].next_slot() is not None
    assert lab.actors[1].next_slot() is None
    lab.over(0, Phase.FAILED)
    assert lab.actors[1].next_slot() is not None
    lab.actors[0] = lab.begun(0)
    assert lab.actors[0].next_slot() is None


def test_one_that_replaces_another_waits_while_the_learner_has_its_slots(clock):
    lab = Lab()
    lab.hand_over_all()
    assert [lab.learner.receive(0.0)[0] for _ in range(SLOTS)] == [0] * SLOTS
    lab.actors[0] = lab.begun(0)
    clock.meanwhile = lambda: lab.learner.give_back(0) if clock.now == 3 else None
    assert lab.actors[0].next_slot() is not None
    assert clock.now == 3


def test_the_seconds_of_those_that_died_still_count_and_what_their_start_took_does_not(clock):
    lab = Lab()
    for spent in (3.0, 2.0):
        clock.cpu = 50.0  # imports, environments, networks
        lab.actors[0].next_slot()
        clock.cpu += spent
        lab.actors[0].hand_over(1.0)
        assert lab.learner.receive(0.0)[0] == 0
        lab.learner.give_back(0)
        lab.actors[0] = lab.begun(0)
    assert lab.learner.cpu_t == 5.0
    assert lab.learner.waited == (0.0, 2.0)


def test_what_an_actor_waits_for_answers_is_waiting_and_not_acting(clock):
    lab = Lab()
    remote = lab.actors[0]._remote = SimpleNamespace(waited=0.0)
    for waited in (0.25, 0.75):
        lab.actors[0].next_slot()
        remote.waited = waited  # so far
        lab.actors[0].hand_over(1.0)
    assert lab.learner.waited == (0.75, 1.25)


def test_an_actor_books_its_wait_while_it_waits(clock):
    """So that a row that comes meanwhile shows it."""
    lab = Lab()
    wait, booked = wait_for_room(lab), []
    clock.meanwhile = lambda: booked.append(lab.learner.waited[0])
    with pytest.raises(PeerLostError):
        wait()
    assert booked[10:13] == [booked[10], booked[10] + 1, booked[10] + 2]


def wait_for_room(lab):
    lab.hand_over_all()
    return lab.actors[0].next_slot


def wait_for_weights(lab):
    return lab.actors[0].wait_for_weights


@pytest.mark.parametrize("wait", [wait_for_room, wait_for_weights])
def test_an_actor_waits_for_a_learner_that_does_nothing_only_so_long(clock, wait):
    with pytest.raises(PeerLostError, match="actor 0 waited 7200 s for the learner"):
        wait(Lab())()
    assert clock.now == ACTOR_SECONDS + 1


@pytest.mark.parametrize("wait", [wait_for_room, wait_for_weights])
def test_a_learner_that_stands_aside_is_waited_for(clock, wait):
    lab = Lab()
    act = wait(lab)
    lab.learner.stand_aside(True)
    clock.meanwhile = lambda: clock.now == 5000 and lab.learner.stand_aside(False)
    with pytest.raises(PeerLostError):
        act()
    assert clock.now == 5000 + ACTOR_SECONDS


@pytest.mark.parametrize("end", ["learner", "user"])
@pytest.mark.parametrize("wait", [wait_for_room, wait_for_weights])
def test_a_wait_ends_when_nobody_wants_any_more_steps(clock, wait, end):
    lab = Lab()
    act = wait(lab)
    stop = lab.learner.end if end == "learner" else lab.board.request_stop
    clock.meanwhile = lambda: clock.now == 2 and stop()
    assert not act()
    assert clock.now == 2
    assert lab.actors[0].is_over


def test_who_comes_when_it_is_over_does_not_begin_though_there_are_weights():
    lab = Lab()
    lab.pipe.weights.publish({}, np.zeros(0), 1)
    assert lab.actors[0].wait_for_weights()
    lab.learner.end()
    assert not lab.actors[0].wait_for_weights()


def test_what_was_begun_when_it_was_over_is_not_waited_for(clock):
    lab = Lab(actors=1)
    lab.hand_over_all()
    clock.meanwhile = lab.learner.end
    assert lab.actors[0].next_slot() is None
    lab.over(0, Phase.DONE)
    for _ in range(SLOTS):
        assert not lab.learner.nothing_comes
        assert lab.learner.receive(0.0) is not None
    assert lab.learner.nothing_comes


def test_nothing_comes_of_one_that_failed_only_once_it_is_lost():
    lab = Lab(actors=2)
    lab.hand_over(1)
    lab.over(0, Phase.DONE)
    lab.over(1, Phase.FAILED)
    assert lab.learner.receive(0.0) is not None
    assert not lab.learner.nothing_comes  # another may be begun in its place
    lab.pipe.lost[1] = 1
    assert lab.learner.nothing_comes


def test_what_a_lost_one_has_handed_over_still_comes():
    lab = Lab(actors=1)
    lab.hand_over(0)
    lab.over(0, Phase.FAILED)
    lab.pipe.lost[0] = 1
    assert not lab.learner.nothing_comes
    assert lab.learner.receive(0.0) is not None
    assert lab.learner.nothing_comes


def test_the_learner_looks_up_when_nothing_has_come_for_the_time_it_was_told(clock):
    assert Lab().learner.receive(10.0) is None
    assert clock.now == 10


def receive(lab):
    while lab.learner.receive(7.0) is None:
        pass


def test_the_learner_waits_only_so_long_for_actors_that_make_no_step(clock):
    lab = Lab()
    with pytest.raises(PeerLostError, match="no actor has made a step for 600 s"):
        receive(lab)
    assert clock.now == 2 * HANG_SECONDS + 1


def test_the_learner_waits_for_an_unroll_as_long_as_somebody_still_plays_it(clock):
    lab = Lab()

    def play():
        if clock.now < 5000:
            lab.board.clock_slots[2] += 1
        elif clock.now == 5000:
            lab.hand_over(1)

    clock.meanwhile = play
    receive(lab)
    assert clock.now == 5000


def test_the_time_that_the_learner_stood_aside_is_no_waiting(clock):
    lab = Lab()
    assert lab.learner.receive(1.0) is None
    clock.now += 10 * HANG_SECONDS
    lab.learner.stand_aside(False)
    assert lab.learner.receive(1.0) is None


@pytest.mark.parametrize(
    ("actors", "learn_queue", "queue_size", "slots"),
    [(4, 1, 1, 2), (4, 4, 1, 2), (4, 5, 1, 3), (2, 8, 3, 7), (1, 3, 1, 4)],
)
def test_an_actor_has_room_for_its_part_of_what_is_learned_from_and_for_what_may_wait(
    actors, learn_queue, queue_size, slots
):
    flow = ActorLearnerSpec(learn_queue=learn_queue, queue_size=queue_size)
    meta = MetaSpec(distributed="actor_learner", max_session=actors, actor_learner=flow)
    assert slots_per_actor(meta) == slots
