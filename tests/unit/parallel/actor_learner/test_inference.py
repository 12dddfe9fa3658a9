"""Central inference gives the same actions as local acting, from the same generator."""

from dataclasses import fields

import numpy as np
import pytest

from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.inference import (
    InferenceClient,
    InferenceServer,
    TrainingOver,
    request_record,
)
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.session.experience import Clock
from slm_lab.session.seeding import session_seeds
from tests.faults.lab import wait_until
from tests.support import actor_critic, parse, ppo, q_learning


def make(spec, seed=0):
    unroll_actor = UnrollActor(spec, session_seeds(seed, 0, 0), clock())
    return unroll_actor, unroll_actor.layout


def clock():
    return Clock(np.zeros(1, np.int64), 0, 10_000)


def started(unroll_actor, weights):
    unroll_actor.weights = weights
    unroll_actor.reset()


def content(unroll):
    """All fields of an unroll, but for its time of transfer."""
    arrays = {
        field.name: getattr(unroll, field.name).copy() for field in fields(unroll)
    }
    arrays["head"] = arrays["head"][:-1]
    return arrays


WITH_ACTORS = {
    "meta__distributed": "actor_learner",
    "meta__actor_learner": {"unroll_length": 12},
}
SPECS = {
    "continuous": ppo(env__name="Pendulum-v1", env__normalize_obs=True, **WITH_ACTORS),
    "discrete": actor_critic(**WITH_ACTORS),
    "exploring": q_learning("DQN", **WITH_ACTORS),
}


def wait(until, nap):
    while not until():
        pass
    return True


@pytest.mark.parametrize("name", SPECS)
def test_an_actor_without_a_network_plays_like_one_with_a_network(name):
    spec = parse(SPECS[name])
    local, layout = make(spec)
    learner, _ = make(spec, seed=1)
    weights = WeightStore.of(learner.agent.learner.flats, layout.num_statistics)
    weights.publish(learner.agent.learner.flats, learner.env.statistics, 7)
    requests = np.zeros(1, request_record(layout.steps))
    client = InferenceClient(requests[0], wait)
    far = UnrollActor(spec, session_seeds(0, 0, 0), clock(), acting_half=client)
    acting, _ = make(spec)
    server = InferenceServer(requests, acting.agent, weights)
    server.start()
    try:
        played = [Unroll.allocate(layout), Unroll.allocate(layout)]
        for unroll_actor, unroll in zip((local, far), played, strict=True):
            started(unroll_actor, weights)
            assert unroll_actor.play(unroll)
            assert unroll_actor.play(unroll)  # the second continues the first
        server.check()
    finally:
        server.close()
    own, of_far = map(content, played)
    for key, array in own.items():
        np.testing.assert_array_equal(array, of_far[key], err_msg=key)
    assert set(of_far["version"].tolist()) == {7}
    for each in (local, learner, far, acting):
        each.close()


def test_an_exception_in_the_server_is_raised_by_the_learner():
    spec = parse(SPECS["discrete"])
    unroll_actor, layout = make(spec)
    weights = WeightStore.of(unroll_actor.agent.learner.flats, layout.num_statistics)
    weights.publish(unroll_actor.agent.learner.flats, unroll_actor.env.statistics, 0)
    requests = np.zeros(1, request_record(layout.steps))
    server = InferenceServer(requests, unroll_actor.agent, weights)

    def fail(obs, frame):
        raise ValueError("no more memory")

    unroll_actor.agent.actor.act = fail
    requests["requested"][0] = 1
    server.start()
    with pytest.raises(ValueError, match="no more memory"):
        wait_until(server.check)
    unroll_actor.close()


def test_an_actor_that_waits_for_actions_when_the_training_ends_plays_no_further():
    spec = parse(SPECS["discrete"])
    unroll_actor, layout = make(spec)
    requests = np.zeros(1, request_record(layout.steps))
    actor = InferenceClient(requests[0], lambda until, nap: False)
    with pytest.raises(TrainingOver):
        actor.act(unroll_actor.env.reset(), 0)
    unroll_actor.close()
