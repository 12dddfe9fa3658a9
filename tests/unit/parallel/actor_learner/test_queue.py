"""Both ends of the queue between actors and a learner: each unroll is received exactly
once."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.parallel.actor_learner.queue import slots_per_actor
from slm_lab.session.status_board import Phase
from slm_lab.spec.schema.meta import ActorLearnerSpec, MetaSpec
from tests.unit.parallel.actor_learner.queues import ACTORS, SLOTS, Lab


def stamp(unroll, number):
    """Fills an unroll with the number."""
    unroll.obs[:] = unroll.reward[:] = unroll.action[:] = unroll.head[:] = number


def number_in(unroll):
    """The number that fills the unroll; fails if its values differ."""
    arrays = (unroll.obs, unroll.reward, unroll.action, unroll.head)
    (number,) = {float(number) for array in arrays for number in np.unique(array)}
    return int(number)


class Model:
    """Random operations at both ends, checked against plain lists."""

    def __init__(self, max_unrolls=1000):
        self.lab = Lab(max_unrolls=max_unrolls)
        self.open = [None] * ACTORS  # the unroll that each is filling
        # numbers of those handed over, the oldest first, with their actor
        self.waiting = []
        # the unrolls of each that the learner holds
        self.held = [[] for _ in range(ACTORS)]
        self.handed = 0

    def act(self, what, actor):
        getattr(self, what)(actor)
        for each, held in enumerate(self.held):
            assert [number_in(unroll) for _, unroll in held] == [
                number for number, _ in held
            ]
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
        unroll = self.open[actor]
        self.open[actor] = None
        if unroll is not None:
            self.handed += 1
            stamp(unroll, self.handed)
            self.lab.actors[actor].hand_over(0.0)
            self.waiting.append((self.handed, actor))

    def die(self, actor):
        """Possibly with a half-full unroll; the replacement continues in the same
        slot."""
        self.lab.over(actor, Phase.FAILED)
        half_full = self.open[actor]
        self.open[actor] = None
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
        st.sampled_from(
            ["begin", "finish", "finish", "die", "receive", "receive", "give_back"]
        ),
        st.integers(0, ACTORS - 1),
    ),
    min_size=20,
    max_size=120,
)


@pytest.mark.medium
@given(acts=ACTS)
def test_unrolls_arrive_once_in_order_and_stay_while_the_learner_has_them(
    acts,
):
    model = Model()
    for what, actor in acts:
        model.act(what, actor)
    for _ in list(model.waiting):
        model.act("receive", 0)
    assert model.lab.learner.receive(0.0) is None


@pytest.mark.medium
@given(acts=ACTS, max_unrolls=st.integers(0, 12))
def test_the_budget_is_never_exceeded_and_met_if_all_continue(acts, max_unrolls):
    model = Model(max_unrolls)
    for what, actor in acts:
        model.act(what, actor)
        assert (
            model.handed + sum(unroll is not None for unroll in model.open)
            <= max_unrolls
        )
    for _ in range(max_unrolls):
        for actor in range(ACTORS):
            for what in ("begin", "finish", "receive", "give_back"):
                model.act(what, actor)
    assert model.handed == max_unrolls
    assert [end.next_slot() for end in model.lab.actors] == [None] * ACTORS


def test_threads_lose_and_overwrite_no_unroll():
    """At full speed; threads may switch between any two steps."""
    count = 400
    lab = Lab(max_unrolls=count)
    errors = []
    got = [[] for _ in range(ACTORS)]

    def play(actor):
        end = lab.actors[actor]
        number = 0
        while (unroll := end.next_slot()) is not None:
            stamp(unroll, -1)
            number += 1
            stamp(unroll, number)
            end.hand_over(0.0)
        lab.over(actor, Phase.DONE)

    def learn():
        try:
            while not lab.learner.is_exhausted:
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


def test_the_unroll_of_a_dead_actor_can_be_played_by_another():
    lab = Lab(actors=2, max_unrolls=1)
    assert lab.actors[0].next_slot() is not None
    assert lab.actors[1].next_slot() is None
    lab.over(0, Phase.FAILED)
    assert lab.actors[1].next_slot() is not None
    lab.actors[0] = lab.begun(0)
    assert lab.actors[0].next_slot() is None


def test_an_actor_that_starts_after_the_end_does_not_begin():
    lab = Lab()
    lab.queue.weights.publish({}, np.zeros(0), 1)
    assert lab.actors[0].wait_for_weights()
    lab.learner.end()
    assert not lab.actors[0].wait_for_weights()


def test_the_queue_is_exhausted_only_once_a_failed_actor_is_lost():
    lab = Lab(actors=2)
    lab.hand_over(1)
    lab.over(0, Phase.DONE)
    lab.over(1, Phase.WAITING)
    assert lab.learner.receive(0.0) is not None
    assert not lab.learner.is_exhausted  # a replacement may be started
    lab.over(1, Phase.FAILED)
    assert lab.learner.is_exhausted


@pytest.mark.parametrize(
    ("actors", "learn_queue", "queue_size", "slots"),
    [(4, 1, 1, 2), (4, 4, 1, 2), (4, 5, 1, 3), (2, 8, 3, 7), (1, 3, 1, 4)],
)
def test_slots_hold_an_actors_part_of_a_batch_and_of_the_waiting_unrolls(
    actors, learn_queue, queue_size, slots
):
    flow = ActorLearnerSpec(learn_queue=learn_queue, queue_size=queue_size)
    meta = MetaSpec(distributed="actor_learner", max_session=actors, actor_learner=flow)
    assert slots_per_actor(meta) == slots
