"""Actors in virtual time, against schedules by hand."""

from collections import namedtuple

import pytest

from slm_lab.parallel.actor_learner.simulated import SimulatedSource
from slm_lab.parallel.virtual.costs import Draws
from slm_lab.parallel.virtual.pace import VirtualPace
from slm_lab.parallel.virtual.turns import Turns, TurnsMemory

STEPS = 10
SECOND = 10**9
Played = namedtuple("Played", "num_steps actor number version")


class Actors:
    """Actors whose unrolls only say which weights they have seen."""

    weights = None
    has_failed = False

    def __init__(self, num_actors, num_slots):
        self.num_actors = num_actors
        self.num_slots = num_slots
        self.version = 0
        self.played = {}

    def begin(self):
        pass

    def play(self, actor, number):
        self.played[actor, number] = Played(STEPS, actor, number, self.version)
        return self.played[actor, number]

    def unroll(self, actor, number):
        return self.played[actor, number]


def simulated(seconds, num_slots=2, max_unrolls=1000):
    """A source whose actors take these seconds for an unroll, and its actors."""
    actors = Actors(len(seconds), num_slots)
    turns = Turns(TurnsMemory.of(1), 0, is_alive=lambda worker: True)
    turns.join(0)
    source = SimulatedSource(
        actors=actors,
        pace=VirtualPace(Draws({}, 0), turns, 1.0),
        draws=[Draws({"acting": [one / STEPS]}, 0) for one in seconds],
        slowdown=1.0,
        max_unrolls=max_unrolls,
    )
    return source, actors, turns


def learn(source, actors, turns, seconds, actor):
    """An update of these seconds, whose weights are published, and the slot goes
    back."""
    turns.advance(round(seconds * SECOND))
    source.catch_up()
    actors.version += 1
    source.give_back(actor)


def test_the_learner_waits_until_an_unroll_is_complete():
    source, _, turns = simulated([3.0])
    actor, unroll = source.receive(1.0)
    assert (actor, unroll.number) == (0, 0)
    assert turns.clock == 3 * SECOND
    assert source.receive(0.0) is None
    assert turns.clock == 3 * SECOND


def test_unrolls_come_in_the_order_in_which_they_are_complete():
    """Of 2 s: at 2, 4, 6. Of 3 s: at 3, 6."""
    source, _, turns = simulated([3.0, 2.0], num_slots=9)
    received = [(source.receive(1.0)[0], turns.clock // SECOND) for _ in range(4)]
    assert received == [(1, 2), (0, 3), (1, 4), (0, 6)]


def test_an_unroll_has_the_weights_that_were_newest_when_it_began():
    """The learner takes 3 s for each update, an actor 2 s for each unroll: they begin
    at 0, 2, and once the learner has given back a slot, at 5, 8, ….

    0 at [0, 2], 1 at [2, 4]; update 1 at [2, 5]; 2 begins at 5 with version 1, as the
    weights are published before the slot goes back; update 2 at [5, 8]: 3 begins at 8
    with version 2."""
    source, actors, turns = simulated([2.0])
    versions = []
    for _ in range(4):
        actor, unroll = source.receive(1.0)
        versions.append((unroll.number, unroll.version))
        learn(source, actors, turns, 3.0, actor)
    assert versions == [(0, 0), (1, 0), (2, 1), (3, 2)]
    assert turns.clock == (2 + 4 * 3) * SECOND
    # the actor waited from 4 to 5, then from 7 to 8, from 10 to 11
    assert source.seconds.waited == pytest.approx(3.0)


def test_actors_faster_than_the_learner_make_it_never_wait():
    source, actors, turns = simulated([1.0, 1.0, 1.0])
    source.receive(1.0)
    for _ in range(6):
        learn(source, actors, turns, 2.0, 0)
        before = turns.clock
        source.receive(1.0)
        assert turns.clock == before


def test_no_unroll_begins_beyond_the_budget():
    source, actors, _ = simulated([1.0, 2.0], max_unrolls=3)
    received = []
    while not source.is_exhausted:
        actor, _ = source.receive(1.0)
        received.append(actor)
        source.give_back(actor)
    assert received == [0, 0, 1]
    assert len(actors.played) == 3
    assert source.receive(1.0) is None
