"""An agent outside the lab acts as the lab's evaluation does, for every row of the table."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.api.agent import Agent
from slm_lab.env.make import make_env
from slm_lab.env.vector.raw import env_seeds
from slm_lab.experiment.saved_run import SavedAgent
from tests.contract.table import ALGORITHM_ROWS, cases

SEED, STEPS, N = 3, 60, 2
CASES = [case for case in cases(ALGORITHM_ROWS) if case.values[0][0] != "Random"]


def small_spec(case):
    """The spec of a row, with N environments."""
    name, variant = case
    spec = ALGORITHM_ROWS[name][variant].spec
    env = spec.env.model_copy(update={"num_envs": N, "vectorization_mode": "sync"})
    return spec.model_copy(update={"env": env})


def evaluation_env(spec):
    """The environments of an evaluation, with moments that change every observation."""
    env = make_env(spec.env, SEED, training=False)
    for block in env.moments:
        size = (block.stop - block.start - 1) // 2
        moments = [[9.0], np.linspace(0.1, 0.4, size), np.linspace(2, 30, size)]
        env.statistics[block] = np.concatenate(moments)
    return env


@pytest.fixture
def spec(case):
    return small_spec(case)


@pytest.fixture
def vector(spec):
    env = evaluation_env(spec)
    yield env
    env.close()


def untrained(spec, vector):
    spaces = vector.observation_space, vector.action_space
    agent = spec.agent.model_copy(update={"memory": None})
    return build_agent(agent, *spaces, N, AgentSeeds(0, 1, 2))


def outside(spec, learner, statistics):
    """The same agent, as `slm_lab.load` makes it of its snapshot."""
    flats = {name: flat.state_dict() for name, flat in learner.flats.items()}
    snapshot = {"frame": 7, "flats": flats, "statistics": statistics.copy()}
    saved = SavedAgent(Path("run"), 0, "best", 7, snapshot, Path("file"))
    return Agent(SimpleNamespace(spec=spec), saved, SEED)


def batched(observations):
    """Single observations as a batch, part by part."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: batched([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(batched(list(parts)) for parts in zip(*observations, strict=True))
    return np.stack(observations)


@pytest.mark.parametrize("case", CASES)
def test_actions_are_those_of_evaluation_bit_for_bit(case, spec, vector):
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
