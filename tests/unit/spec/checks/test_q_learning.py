"""What Q-learning's variants ask of a net, and what they refuse."""

import pytest

from slm_lab.spec.parse import parse
from tests.support import ppo, q_learning, sarsa, soft
from tests.unit.spec.problems import assert_problem

NOISY = {"agent__net__noisy": True}
RECURRENT = {
    "type": "RecurrentNet",
    "fc_hid_layers": [8],
    "rnn_hidden_size": 8,
    "seq_len": 4,
    "update_frequency": 64,
}
HYDRA = {"type": "HydraMLPNet", "hid_layers": [[8], [8], [8]], "update_frequency": 64}
TAKEN = "agent.net.noisy = true: is for the fully connected layers of MLPNet, …"
NO_NOISE = "agent.net.noisy = true: {} draws no noise of weights; …"
NO_EMBEDDING = "agent.net.type = '{}': IQN multiplies an embedding …"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (q_learning("DQN", **NOISY), None),
        (q_learning("C51", **NOISY, agent__net__type="DuelingMLPNet"), None),
        (q_learning("IQN", **NOISY, agent__net__noisy_sigma=0.1), None),
        (q_learning("DQN", agent__net={**RECURRENT, "noisy": True}), TAKEN),
        (q_learning("DQN", agent__net={**HYDRA, "noisy": True}), TAKEN),
        (ppo(**NOISY), NO_NOISE.format("PPO")),
        (sarsa(**NOISY), NO_NOISE.format("SARSA")),
        (
            soft("SoftActorCritic", **NOISY),
            NO_NOISE.format("SoftActorCritic"),
        ),
        (q_learning("DQN", agent__net__noisy_sigma=0.0, **NOISY), "… must be > 0"),
        (q_learning("IQN", agent__net=HYDRA), NO_EMBEDDING.format("HydraMLPNet")),
        (
            q_learning("IQN", agent__net=RECURRENT),
            "agent.net.type = 'RecurrentNet': IQN learns from single steps; …",
        ),
        (
            q_learning("MunchausenDQN", agent__algorithm__num_step_returns=3),
            "agent.algorithm.num_step_returns = 3: must be 1: the bonus of …",
        ),
        (
            q_learning("MunchausenDQN", agent__algorithm__munchausen_clip=0.5),
            "agent.algorithm.munchausen_clip = 0.5: must be < 0",
        ),
    ],
)
def test_a_combination_without_meaning_is_refused(raw, problem):
    assert_problem(raw, problem)


GREEDY = {
    "agent__algorithm__action_policy": "default",
    "agent__algorithm__explore_var_spec": None,
}


def exploration_warnings(raw):
    found = map(str, parse("s", raw).suspicious)
    return [line for line in found if "nothing is explored" in line]


def test_a_noisy_net_explores_without_epsilon():
    assert exploration_warnings(q_learning("DQN", **GREEDY, **NOISY)) == []
    (line,) = exploration_warnings(q_learning("DQN", **GREEDY))
    assert "or a noisy net" in line


def test_sigma_without_noise_has_no_effect():
    raw = q_learning("DQN", agent__net__noisy_sigma=0.1)
    without_effect = [line for line in parse("s", raw).legacy if "sigma" in line]
    assert without_effect == ["agent.net.noisy_sigma (the net has no noisy layers)"]
