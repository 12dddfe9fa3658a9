"""What `action_policy` makes of a policy."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from slm_lab.agent.distribution.behaviour import EpsilonGreedy, behaviour, boltzmann
from slm_lab.agent.distribution.family import distribution_family
from slm_lab.core.errors import LabError
from tests.support import parse, ppo, rows, run_session

LOGITS = torch.tensor([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 0.0, 0.0]])
DISCRETE = spaces.Discrete(4)


def probabilities(policy):
    actions = torch.arange(4)
    return torch.stack([policy.log_prob(a.expand(2)).exp() for a in actions], -1)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_epsilon_greedy_takes_the_best_but_for_epsilon(epsilon):
    expected = torch.full((2, 4), epsilon / 4)
    expected[0, 1] += 1 - epsilon
    expected[1, 0] += 1 - epsilon
    policy = EpsilonGreedy(LOGITS, epsilon)
    torch.testing.assert_close(probabilities(policy), expected)
    entropy = torch.special.entr(expected).sum(-1)
    torch.testing.assert_close(policy.entropy(), entropy)
    draws = policy.sample(torch.Generator().manual_seed(0))
    assert epsilon > 0 or torch.equal(draws, LOGITS.argmax(-1))


def test_epsilon_is_drawn_for_each_environment_by_itself():
    policy = EpsilonGreedy(LOGITS[:1].expand(10_000, 4), 0.4)
    draws = policy.sample(torch.Generator().manual_seed(0))
    share = (draws == 1).float().mean().item()
    assert share == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_boltzmann_is_a_softmax_at_a_temperature(temperature):
    policy = boltzmann(LOGITS, temperature)
    torch.testing.assert_close(probabilities(policy), (LOGITS / temperature).softmax(-1))


def test_boltzmann_at_zero_is_greedy():
    policy = boltzmann(LOGITS, 0.0)
    draws = policy.sample(torch.Generator().manual_seed(0))
    assert torch.equal(draws, LOGITS.argmax(-1))


@pytest.mark.parametrize(
    ("space", "log_prob"),
    [
        (DISCRETE, -np.log(4)),
        (spaces.MultiDiscrete([2, 3]), -np.log(6)),
        (spaces.MultiBinary(3), -np.log(8)),
        (spaces.Box(-1.0, 1.0, (2,), np.float32), -np.log(4)),
    ],
)
def test_random_ignores_the_policy(space, log_prob):
    family = distribution_family(space, "default")
    params = torch.randn(5, family.param_dim, generator=torch.Generator().manual_seed(0)) * 5
    policy = behaviour("random", family, space)(params, 0.0)
    actions = policy.sample(torch.Generator().manual_seed(0))
    assert all(action in space for action in actions.numpy())
    torch.testing.assert_close(policy.log_prob(actions), torch.full((5,), float(log_prob)))


def test_what_cannot_be_done_is_refused_with_the_reason():
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(LabError, match="chooses one of n actions"):
        behaviour("boltzmann", distribution_family(box, "default"), box)
    unbounded = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    with pytest.raises(LabError, match="needs actions with two bounds"):
        behaviour("random", distribution_family(unbounded, "default"), unbounded)


def test_the_exploration_variable_follows_its_schedule_and_is_in_every_row(tmp_path):
    schedule = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.0, "start_step": 0,
                "end_step": 1000}  # fmt: skip
    spec = parse(
        ppo(
            agent__algorithm__action_policy="epsilon_greedy",
            agent__algorithm__explore_var_spec=schedule,
        )
    )
    df = rows(run_session(spec, tmp_path))
    # The row's last act came one vector step of four environments before it.
    np.testing.assert_allclose(df["explore_var"], 1 - (df["frame"] - 4) / 1000, atol=1e-9)


def test_the_recorded_log_probability_is_that_of_the_behaviour(tmp_path):
    """PPO's first pass sees the ratio of policy and behaviour, which is not one here."""
    changes = {"agent__algorithm__training_epoch": 1, "agent__algorithm__minibatch_size": 64}
    kl = {}
    for name in ("default", "random"):
        spec = parse(ppo(**changes, agent__algorithm__action_policy=name))
        kl[name] = rows(run_session(spec, tmp_path / name))["approx_kl"].iloc[0]
    assert kl["default"] == pytest.approx(0.0, abs=1e-6)
    assert kl["random"] > 1e-6
