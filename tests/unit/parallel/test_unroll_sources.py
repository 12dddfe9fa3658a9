"""What a learner may expect of every source of unrolls."""

import pytest

from slm_lab.parallel.actor_learner.queue import LearnerQueue
from slm_lab.parallel.actor_learner.ray_source import RaySource
from slm_lab.parallel.actor_learner.serial import LocalActors, LocalSource, SerialSource
from slm_lab.parallel.actor_learner.simulated import SimulatedSource
from slm_lab.parallel.actor_learner.source import UnrollSource
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.storage.run_dir import RunDir
from tests.support import parse, ppo
from tests.unit.parallel.actor_learner import fake_ray, queues

ACTORS = 2
SLOTS = 2
BUDGET = 7


class Queued:
    """Actors in separate processes, over shared memory."""

    def __init__(self, budget=BUDGET):
        self._lab = queues.Lab(ACTORS, SLOTS, budget)
        self.source = self._lab.learner
        self.played = [0] * ACTORS

    def play(self, actor):
        """Plays one unroll if the actor may; returns whether it did."""
        ring = self._lab.queue.rings[actor]
        if ring["handed"] - ring["returned"] == SLOTS:
            return False
        unroll = self._lab.actors[actor].next_slot()
        if unroll is None:
            self._lab.over(actor, Phase.DONE)
            return False
        unroll.reward[:] = self.played[actor]
        unroll.head[-1] = sum(self.played)  # `handed_at`
        self._lab.actors[actor].hand_over(1.0)
        self.played[actor] += 1
        return True

    def lose(self, actor):
        self._lab.over(actor, Phase.FAILED)


class OnRay:
    """Ray actors on a cluster."""

    def __init__(self, budget=BUDGET):
        frame = fake_ray.FRAMES
        slots = {"learn_queue": 2, "queue_size": 1}
        self._lab = fake_ray.Lab(
            self.ray, ACTORS, (budget + 1) * frame, frame, 0, **slots
        )
        self.source = self._lab.source
        self._lab.begin()
        self._actors = list(self._lab.actors)
        self.played = [0] * ACTORS

    def play(self, actor):
        asked = len(self._actors[actor].play.calls)
        if self.played[actor] == asked:
            return False
        self.played[actor] += 1
        self._actors[actor].has_played(self.played[actor] * fake_ray.FRAMES)
        return True

    def lose(self, actor):
        self._actors[actor].is_lost()
        self._lab.poll()


@pytest.fixture(params=[Queued, OnRay])
def make(request, monkeypatch):
    """Makes a source whose actors play when the test says so."""
    OnRay.ray = fake_ray.replace_ray(monkeypatch)
    return request.param


def receive(made):
    """The actor and the number of the next unroll; None if none has arrived."""
    received = made.source.receive(0.0)
    if received is None:
        return None
    actor, unroll = received
    return actor, int(unroll.reward[0, 0])


def receive_all(made):
    found = []
    while (one := receive(made)) is not None:
        found.append(one)
    return found


def test_each_unroll_is_received_once_and_those_of_an_actor_in_their_order(make):
    made = make()
    while made.play(0) | made.play(1):
        pass
    found = receive_all(made)
    assert sorted(found) == [
        (actor, n) for actor in range(ACTORS) for n in range(SLOTS)
    ]
    assert [n for actor, n in found if actor == 0] == [0, 1]
    assert receive(made) is None


def test_an_actor_continues_only_when_one_of_its_slots_is_given_back(make):
    made = make()
    while made.play(0):
        pass
    assert made.played[0] == made.source.num_slots == SLOTS
    assert receive(made) == (0, 0)
    assert not made.play(0)
    made.source.give_back(0)
    assert made.play(0)
    assert not made.play(0)


@pytest.mark.parametrize("budget", [0, 1, BUDGET])
def test_the_budget_is_played_to_the_end_and_then_the_source_is_exhausted(make, budget):
    made = make(budget)
    found = []
    for _ in range(2 * budget + 2):
        while made.play(0) | made.play(1):
            pass
        assert made.source.is_exhausted == (len(found) == budget)
        for actor, number in receive_all(made):
            found.append((actor, number))
            made.source.give_back(actor)
    assert len(found) == len(set(found)) == budget


def test_a_source_without_actors_is_exhausted(make):
    made = make()
    assert not made.source.is_exhausted
    for actor in range(ACTORS):
        assert not made.source.is_exhausted
        made.lose(actor)
    assert made.source.is_exhausted


def test_a_resumed_run_begins_with_new_actors(make):
    assert make().source.state_dict() == {}


@pytest.fixture
def serial(tmp_path):
    meta = {"distributed": "actor_learner", "max_session": ACTORS}
    raw = ppo(agent__algorithm__time_horizon=16)
    raw["meta"] |= {**meta, "actor_learner": {"serial": True, "unroll_length": 16}}
    task = SessionTask(
        spec=parse(raw),
        run_dir=RunDir(tmp_path, "serial"),
        root_seed=0,
        trial=0,
        session=0,
        num_sessions=1,
        resume=False,
    )
    source = SerialSource(LocalActors(task, StatusBoard.allocate(CONTEXT, 1)))
    source.begin()
    yield source
    source.close()


def test_actors_in_the_learners_process_alternate_and_never_run_dry(serial):
    turns = [serial.receive(0.0)[0] for _ in range(2 * ACTORS)]
    assert turns == [0, 1, 0, 1]
    assert not serial.is_exhausted
    assert serial.seconds.waited == 0.0 < serial.seconds.acted


def test_actors_in_the_learners_process_resume_with_their_running_episodes(serial):
    serial.receive(0.0)
    saved = serial.state_dict()
    _, expected = serial.receive(0.0)
    expected = expected.obs.copy()
    serial.receive(0.0)
    serial.load_state_dict(saved)
    assert (serial.receive(0.0)[1].obs == expected).all()


def test_every_source_is_covered():
    assert set(UnrollSource.__subclasses__()) == {LearnerQueue, RaySource, LocalSource}
    assert set(LocalSource.__subclasses__()) == {SerialSource, SimulatedSource}
