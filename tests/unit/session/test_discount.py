"""The γ of an algorithm in its environments."""

import numpy as np
import pytest

from slm_lab.session.build import env_and_agent
from slm_lab.session.seeding import session_seeds
from tests.support import parse, ppo


@pytest.mark.parametrize(("gamma", "deviates"), [(0.0, False), (0.9, True)])
def test_rewards_are_normalised_by_the_returns_of_this_gamma(gamma, deviates):
    """The rewards of CartPole do not deviate; their discounted returns do."""
    spec = parse(ppo(agent__algorithm__gamma=gamma, env__normalize_reward=True))
    env, agent = env_and_agent(spec, session_seeds(0, 0, 0))
    obs = env.reset()
    for _ in range(5):
        rewards = (step := env.step(agent.act(obs, 0).action)).reward
        obs = step.obs
    env.close()
    assert np.all(rewards < 10) is np.bool_(deviates)
