"""Replaces Ray: actors controlled by a test, and a source of unrolls that calls
them."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from ray.exceptions import ActorDiedError

from slm_lab.parallel import hang_detector
from slm_lab.parallel.actor_learner import ray_source as source_module
from slm_lab.parallel.actor_learner.ray_source import RaySource, UnrollMessage
from slm_lab.parallel.actor_learner.source import ActorSeconds
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollLayout, packed
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.ray import connect
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.run_dir import RunDir
from tests.support import memory_layout, parse, ppo

STEPS = memory_layout((4,), horizon=16, num_envs=4)
FRAMES = 64
"""Of one unroll."""


class Answer:
    """The future result of a call."""

    def __init__(self, *given):
        self.given = given
        self.is_here = False

    def come(self, value=None):
        self.is_here = True
        self.value = value


class Method:
    def __init__(self):
        self.calls = []

    def options(self, concurrency_group):
        return self

    def remote(self, *given, **named):
        self.calls.append(Answer(*given, *named.values()))
        return self.calls[-1]


class RemoteActor:
    """A Ray actor that does what the test says."""

    def __init__(self):
        self.begin, self.play, self.take, self.frame = (Method() for _ in range(4))
        self.is_killed = False

    def has_begun(self):
        self.begin.calls[0].come()

    def has_played(self, frame=FRAMES, number=None):
        """The unroll of that number, or the next one."""
        waiting = [call for call in self.play.calls if not call.is_here]
        call = waiting[0] if number is None else self.play.calls[number]
        unroll = Unroll.allocate(UnrollLayout(STEPS, 0))
        unroll.reward[:] = self.play.calls.index(call)
        call.come(UnrollMessage(packed(unroll), frame, ActorSeconds(1.0, 2.0, 0.5)))

    def is_lost(self, error=None):
        for method in (self.begin, self.play, self.take, self.frame):
            for call in method.calls:
                if not call.is_here:
                    call.come(error or ActorDiedError())


class FakeRay:
    """The few calls that a source makes, and the clock by which it measures."""

    def __init__(self):
        self.now = 0.0
        self.actors = []
        self.put_count = 0
        self.cpus = 8

    def remote(self, **options):
        return lambda _: SimpleNamespace(remote=self._make)

    def _make(self, folder):
        self.actors.append(RemoteActor())
        return self.actors[-1]

    def wait(self, refs, timeout):
        here = [ref for ref in refs if ref.is_here]
        if not here:
            self.now += timeout
        return here[:1], []

    def get(self, refs):
        values = [ref.value for ref in (refs if isinstance(refs, list) else [refs])]
        for value in values:
            if isinstance(value, Exception):
                raise value
        if isinstance(refs, list):
            return values
        return values[0]

    def put(self, value):
        self.put_count += 1
        return value

    def kill(self, actor):
        actor.is_killed = True

    def cluster_resources(self):
        return {"CPU": self.cpus}

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Lab:
    """A source with its status board, and the results of lost actors that its parent
    receives."""

    def __init__(self, ray, actors, max_frame, frame, max_restart, **flow):
        meta = {
            "distributed": "actor_learner",
            "max_session": actors,
            "cluster": "auto",
        }
        raw = ppo(env__max_frame=max_frame)
        raw["meta"] |= {**meta, "max_restart": max_restart, "actor_learner": flow}
        spec = parse(raw)
        self.ray = ray
        self.lost = []
        self.status_board = StatusBoard.allocate(CONTEXT, 1 + actors)
        self.status_board.clock_slots[0] = frame
        task = SessionTask(
            spec=spec,
            run_dir=RunDir(Path(), "s"),
            root_seed=0,
            trial=0,
            session=0,
            num_sessions=1 + actors,
            resume=False,
        )
        agent = SimpleNamespace(learner=SimpleNamespace(flats={}))
        env = SimpleNamespace(statistics=np.zeros(0))
        losses = SimpleNamespace(send=self.lost.append)
        self.source = RaySource(
            task=task, status_board=self.status_board, agent=agent, env=env, lost=losses
        )

    @property
    def actors(self):
        """The current actors, in the order of their start."""
        return [actor for actor in self.ray.actors if not actor.is_killed]

    def publish(self, version=1):
        self.source.weights.publish({}, np.zeros(0), version)

    def begin(self):
        self.publish()
        self.poll()
        for actor in self.actors:
            actor.has_begun()
        self.poll()

    def poll(self, after=1.0):
        self.ray.now += after
        self.source.poll()

    def receive(self):
        """The actor of the next unroll, and the index of that unroll among its
        requests."""
        received = self.source.receive(0.0)
        if received is None:
            return None
        actor, unroll = received
        return actor, int(unroll.reward[0, 0])

    def asked(self):
        return [len(actor.play.calls) for actor in self.actors]

    def phases(self):
        return [
            self.status_board.phase(1 + actor)
            for actor in range(self.source.num_actors)
        ]


def replace_ray(monkeypatch):
    """Puts a FakeRay in place of Ray and of the clock, and returns it."""
    fake = FakeRay()

    @contextmanager
    def connected(address):
        fake.is_connected = True
        yield
        fake.is_connected = False

    for module in (source_module, connect):
        monkeypatch.setattr(module, "ray", fake)
    for module in (source_module, hang_detector):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(source_module, "connected", connected)
    return fake
