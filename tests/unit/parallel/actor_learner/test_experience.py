"""What the learner does with the unrolls that it holds."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.core.state import HasState
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.experience import (
    OnPolicyExperience,
    ReplayExperience,
)
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollMemory
from slm_lab.session.experience import Clock
from slm_lab.session.pace import Pace
from slm_lab.session.seeding import session_seeds
from slm_lab.testing.play import load_whole, same, whole
from tests.support import parse, ppo, q_learning

WITH_ACTORS = {
    "meta__distributed": "actor_learner",
    "meta__actor_learner": {"unroll_length": 8},
}
FREE = {**WITH_ACTORS, "meta__actor_learner": {"unroll_length": 8, "train_ratio": None}}


def steps_of(memory):
    """The stored steps, the oldest first, as a checkpoint has them."""
    return whole(memory)["steps"]


class OneSlot(HasState):
    """An unroll source whose only actor plays repeatedly into its only slot."""

    num_actors = 1
    num_slots = 1

    def catch_up(self):
        pass

    def __init__(self, actor, layout, weights):
        self.actor = actor
        self.weights = weights
        self.slot = Unroll.allocate(layout)
        self.is_free = True
        self.played = []

    def receive(self, seconds):
        if not self.is_free:
            return None
        self.is_free = False
        assert self.actor.play(self.slot)
        self.played.append(self.slot.obs.copy())
        return 0, self.slot

    def give_back(self, actor):
        self.is_free = True

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.fixture
def make():
    actors = []

    def make(kind, spec, wanted=1):
        own_clock = Clock(np.zeros(1, np.int64), 0, 10_000)
        actor = UnrollActor(spec, session_seeds(0, 0, 0), own_clock)
        actors.append(actor)
        replays = kind is ReplayExperience
        agent = build_agent(
            spec=spec.agent,
            layout=actor.env.layout,
            action_space=actor.env.action_space,
            num_envs=spec.env.num_envs,
            seeds=AgentSeeds(0, 0, 0),
            make_memory=None if replays else lambda _: UnrollMemory(wanted),
        )
        source = OneSlot(actor, actor.layout, actor.weights)
        clock = Clock(np.zeros(1, np.int64), 0, 10_000)
        experience = kind(source, agent, actor.env, clock, spec, Pace())
        experience.publish()
        actor.reset()
        return experience, agent, source

    yield make
    for actor in actors:
        actor.close()


def test_a_learner_that_holds_all_slots_and_needs_more_copies_them(make):
    experience, agent, source = make(
        OnPolicyExperience, parse(ppo(**WITH_ACTORS)), wanted=3
    )
    for _ in range(3):
        experience.step()
    assert agent.is_due
    rollout = agent.memory.take()
    for part, played in enumerate(source.played):
        own = rollout.obs[:, 4 * part : 4 * (part + 1)].numpy()
        assert_array_equal(own, played[:-1])


def test_an_actor_whose_slots_are_all_held_continues_at_once(make):
    """Every step of the learner is an unroll of the actor, without waiting in
    between."""
    experience, agent, source = make(
        OnPolicyExperience, parse(ppo(**WITH_ACTORS)), wanted=3
    )
    for taken in (1, 2, 3):
        experience.step()
        assert len(source.played) == taken
    assert agent.is_due


def test_a_learner_holds_its_unrolls_without_a_copy_until_it_has_learned(
    make,
):
    experience, agent, source = make(OnPolicyExperience, parse(ppo(**WITH_ACTORS)))
    experience.step()
    assert agent.is_due
    assert not source.is_free
    source.slot.obs[0] += 1
    (held,) = agent.memory.state_dict()["unrolls"]
    assert_array_equal(held["obs"], source.slot.obs)
    agent.learn(0)
    count = source.weights.count
    experience.learned()
    assert source.is_free
    assert source.weights.count == count + 1


def test_a_replay_memory_has_the_steps_of_one_actor_as_if_they_were_its_own(make):
    experience, agent, source = make(
        ReplayExperience, parse(q_learning("DQN", **WITH_ACTORS))
    )
    for _ in range(24):
        experience.step()
    assert (agent.memory.num_stored, len(source.played)) == (24 * 4, 3)
    stored = steps_of(agent.memory)["obs"]["obs"].reshape(24, 4, 4)
    assert_array_equal(stored, np.concatenate([obs[:-1] for obs in source.played]))


def test_steps_of_fresh_episodes_do_not_follow_what_was_before(make):
    experience, agent, source = make(
        ReplayExperience, parse(q_learning("DQN", **WITH_ACTORS))
    )
    for _ in range(8):
        experience.step()
    source.actor.reset()
    experience.step()
    stored = steps_of(agent.memory)
    done = stored["arrays"]["done"].reshape(9, 4)
    assert done[7].all()
    assert not done[8].any()
    assert_array_equal(stored["obs"]["last_obs"][-4:], source.played[0][-1])


def test_a_learner_that_trains_as_fast_as_it_can_is_due_whenever_nothing_comes(make):
    experience, agent, _ = make(ReplayExperience, parse(q_learning("DQN", **FREE)))
    experience.step()
    assert agent.memory.num_stored == 32
    for _ in range(5):
        assert agent.is_due
        agent.learn(0)
    assert agent.learner.opt_step == 5


@pytest.mark.parametrize(
    "keys", [{}, {"update_to_data": 4.0, "training_start_step": 64}]
)
def test_a_learner_without_a_ratio_waits_for_the_first_unroll(make, keys):
    own = {f"agent__algorithm__{key}": value for key, value in keys.items()}
    start = {
        "agent__algorithm__training_start_step": 0,
        "agent__algorithm__training_batch_iter": 1,
    }
    data = q_learning("DQN", **{**start, **own, **FREE})
    experience, agent, _ = make(ReplayExperience, parse(data).as_learned())
    assert not agent.is_due
    while not agent.is_due:
        experience.step()
    assert agent.memory.num_stored == max(32, keys.get("training_start_step", 0))
    assert agent.learn(0)["update_to_data"] > 0


def test_a_partly_consumed_unroll_is_saved_with_its_remaining_steps(make):
    spec = parse(q_learning("DQN", **WITH_ACTORS))
    experience, agent, source = make(ReplayExperience, spec)
    for _ in range(5):
        experience.step()
    state = experience.state_dict()
    again, other, _ = make(ReplayExperience, spec)
    load_whole(other.memory, whole(agent.memory))
    again.load_state_dict(state)
    for _ in range(3):
        experience.step()
        again.step()
    assert same(steps_of(other.memory), steps_of(agent.memory))
    assert len(source.played) == 1
    saved = Unroll(**state["unroll"])
    for field in dataclasses.fields(saved):
        assert not np.shares_memory(
            getattr(saved, field.name), getattr(source.slot, field.name)
        )
