"""A loss that is not finite is one error, without warnings of NumPy before it."""

import warnings

import pytest

from slm_lab.core.errors import NonFiniteLossError
from tests.support import actor_critic, parse, ppo, q_learning, run_session, sarsa, soft

MAKERS = {
    "PPO": ppo,
    "A2C": actor_critic,
    "SARSA": sarsa,
    "DQN": lambda **changes: q_learning("DQN", **changes),
    "SAC": lambda **changes: soft("SoftActorCritic", **changes),
}


@pytest.mark.parametrize("algorithm", MAKERS)
def test_rewards_that_overflow_give_the_error_and_no_warning(algorithm, tmp_path):
    spec = parse(MAKERS[algorithm](env__reward_scale=1e36))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(NonFiniteLossError):
            run_session(spec, tmp_path)
