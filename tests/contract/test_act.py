"""A loaded agent acts as the lab's evaluation does, for every row of the table."""

import numpy as np
import pytest

from slm_lab.env.vector.raw import env_seeds
from tests.contract.outside import (
    CASES,
    SEED,
    N,
    batched,
    evaluation_env,
    outside,
    small_spec,
    untrained,
)

STEPS = 60


@pytest.fixture
def spec(case):
    return small_spec(case)


@pytest.fixture
def vector(spec):
    env = evaluation_env(spec)
    yield env
    env.close()


@pytest.mark.parametrize("case", CASES)
def test_actions_equal_those_of_evaluation_bit_for_bit(case, spec, vector):
    inside = untrained(spec, vector)
    agent = outside(spec, inside.learner, vector.statistics)
    taken, step_raw = [], vector.raw.step
    vector.raw.step = lambda action: (taken.append(action.copy()), step_raw(action))[1]
    obs = vector.reset()
    envs = [agent.make_env() for _ in range(N)]
    seeds = env_seeds(SEED, N)
    raw = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    for _ in range(STEPS):
        result = vector.step(inside.actor.act_greedily(obs))
        inside.actor.end_episodes(result.terminated | result.truncated)
        obs = result.obs
        actions = agent.act(batched(raw))
        np.testing.assert_array_equal(actions, taken[-1])
        assert actions.dtype == taken[-1].dtype
        done = np.zeros(N, bool)
        for n, env in enumerate(envs):
            assert env.action_space.contains(actions[n])
            raw[n], _, terminated, truncated, _ = env.step(actions[n])
            done[n] = terminated or truncated
            if done[n]:
                raw[n], _ = env.reset()
        np.testing.assert_array_equal(done, result.terminated | result.truncated)
        agent.reset(done)
    agent.reset()
    one = agent.act(raw[0])
    assert agent.action_space.contains(one)
    agent.reset()
    np.testing.assert_array_equal(agent.act(batched(raw[:1])), [one])
    assert agent.action_space.contains(agent.act(raw[0], deterministic=False))
    for env in envs:
        env.close()
