"""How `action_policy` changes a policy."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.agent.distribution.distributions import MASKED_LOGIT
from slm_lab.agent.distribution.exploration import (
    Generators,
    boltzmann,
    epsilon_greedy,
    exploration_policy,
    masked_epsilon_greedy,
)
from slm_lab.agent.distribution.family import distribution_family
from tests.support import parse, ppo, rows, run_session

LOGITS = np.array([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 0.0, 0.0]], np.float32)
DISCRETE = spaces.Discrete(4)
MANY = 40_000


def frequencies(make, *variables):
    """(2, 4) the frequency of each action for either row of LOGITS, and log p of the
    drawn ones."""
    shares = []
    believed = []
    for row in LOGITS:
        action, log_prob = make(np.tile(row, (MANY, 1)), *variables, Generators(0))
        assert action.shape == log_prob.shape == (MANY,)
        assert action.dtype == np.int64
        assert log_prob.dtype == np.float32
        shares.append(np.bincount(action, minlength=4) / MANY)
        believed.append(
            {int(a): float(p) for a, p in zip(action, log_prob, strict=True)}
        )
    return np.array(shares), believed


def check_frequencies(make, variable, expected):
    shares, believed = frequencies(make, variable)
    assert_allclose(shares, expected, atol=4 * 0.5 / MANY**0.5)
    for row, log_probs in zip(expected, believed, strict=True):
        assert set(log_probs) <= set(np.flatnonzero(row))
        for action, log_prob in log_probs.items():
            assert log_prob == pytest.approx(np.log(row[action]), abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_epsilon_greedy_takes_the_best_but_for_epsilon(epsilon):
    """By one draw for each environment: the shares are those of independent ones."""
    expected = np.full((2, 4), epsilon / 4)
    expected[0, 1] += 1 - epsilon
    expected[1, 0] += 1 - epsilon
    check_frequencies(epsilon_greedy, epsilon, expected)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_epsilon_greedy_with_a_mask_that_allows_all_is_epsilon_greedy(epsilon):
    logits = np.random.default_rng(0).normal(size=(999, 4)).astype(np.float32)
    masked = masked_epsilon_greedy(logits, epsilon, Generators(3))
    for one, other in zip(
        masked, epsilon_greedy(logits, epsilon, Generators(3)), strict=True
    ):
        assert_array_equal(one, other)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_greedy_with_a_mask_is_epsilon_greedy_among_what_it_allows(epsilon):
    logits = np.tile(np.array([1, MASKED_LOGIT, 3, 2], np.float32), (MANY, 1))
    action, log_prob = masked_epsilon_greedy(logits, epsilon, Generators(0))
    expected = np.array([epsilon / 3, 0, 1 - epsilon + epsilon / 3, epsilon / 3])
    assert_allclose(np.bincount(action, minlength=4) / MANY, expected, atol=0.01)
    assert_allclose(np.exp(log_prob), expected[action], rtol=1e-5)


@pytest.mark.parametrize("name", ["default", "random", "boltzmann", "epsilon_greedy"])
def test_no_policy_chooses_an_action_that_is_masked(name):
    family = distribution_family(DISCRETE, "default")
    policy = exploration_policy(name, family, DISCRETE, has_mask=True)
    logits = np.tile(np.array([MASKED_LOGIT, 1, MASKED_LOGIT, 0], np.float32), (999, 1))
    action, log_prob = policy(logits, 1.0, Generators(0))
    assert set(action.tolist()) == {1, 3}
    assert (log_prob > -2).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_boltzmann_is_a_softmax_at_a_temperature(temperature):
    expected = torch.from_numpy(LOGITS / temperature).softmax(-1).numpy()
    check_frequencies(boltzmann, temperature, expected)


def test_boltzmann_at_zero_is_greedy():
    action, log_prob = boltzmann(LOGITS, 0.0, Generators(0))
    assert_array_equal(action, LOGITS.argmax(-1))
    assert_array_equal(log_prob, np.zeros(2))


def test_an_action_without_probability_is_never_chosen():
    p = np.tile(np.array([0.0, 0.3, 0.0, 0.7, 0.0], np.float32), (MANY, 1))
    with np.errstate(divide="ignore"):
        action, _ = boltzmann(np.log(p), 1.0, Generators(0))
    assert set(action.tolist()) == {1, 3}


def test_the_outputs_of_a_network_stay_as_they_are():
    for logits in (LOGITS, LOGITS[:1].copy()):
        before = logits.copy()
        boltzmann(logits, 0.5, Generators(0))
        assert_array_equal(logits, before)


@pytest.mark.parametrize("name", ["default", "random"])
def test_exploration_has_the_probabilities_of_the_learners_categorical(name):
    family = distribution_family(DISCRETE, "default")
    logits = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    action, log_prob = exploration_policy(name, family, DISCRETE)(
        logits, 0.0, Generators(0)
    )
    of_learner = family(torch.from_numpy(logits if name == "default" else 0 * logits))
    expected = of_learner.log_prob(torch.from_numpy(action))
    assert_allclose(log_prob, expected.numpy(), atol=1e-5)


def test_normal_actions_have_the_mean_deviation_and_density_of_the_learners_normal():
    """The second component's ln σ is beyond its bound, which counts in place of it."""
    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    family = distribution_family(space, "Normal")
    params = np.tile(np.array([0.5, -2.0, -1.0, 3.0], np.float32), (MANY, 1))
    action, log_prob = exploration_policy("default", family, space)(
        params, 0.0, Generators(0)
    )
    assert action.dtype == log_prob.dtype == np.float32
    std = np.exp([-1.0, 2.0])
    assert_allclose((action.mean(0) - [0.5, -2.0]) / std, 0.0, atol=4 / MANY**0.5)
    assert_allclose(action.std(0) / std, 1.0, atol=4 * (0.5 / MANY) ** 0.5)
    assert abs(np.corrcoef(action.T)[0, 1]) < 4 / MANY**0.5
    expected = family(torch.from_numpy(params)).log_prob(torch.from_numpy(action))
    assert_allclose(log_prob, expected.numpy(), atol=1e-4)


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
    params = (
        np.random.default_rng(0).normal(size=(5, family.param_dim)).astype(np.float32)
        * 5
    )
    actions, log_probs = exploration_policy("random", family, space)(
        params, 0.0, Generators(0)
    )
    assert all(action in space for action in actions)
    assert_allclose(log_probs, np.full(5, log_prob), rtol=1e-6)


def test_the_exploration_variable_follows_its_schedule_and_is_in_every_row(tmp_path):
    schedule = {
        "name": "linear_decay",
        "start_val": 1.0,
        "end_val": 0.0,
        "start_step": 0,
        "end_step": 1000,
    }
    spec = parse(
        ppo(
            agent__algorithm__action_policy="epsilon_greedy",
            agent__algorithm__explore_var_spec=schedule,
        )
    )
    df = rows(run_session(spec, tmp_path))
    # The row's last act came one vector step of four environments before it.
    assert_allclose(df["explore_var"], 1 - (df["frame"] - 4) / 1000, atol=1e-9)


def test_the_recorded_log_probability_is_that_of_the_behaviour(tmp_path):
    """PPO's first pass sees the ratio of policy and behaviour, which is not one
    here."""
    changes = {
        "agent__algorithm__training_epoch": 1,
        "agent__algorithm__minibatch_size": 64,
    }
    kl = {}
    for name in ("default", "random"):
        spec = parse(ppo(**changes, agent__algorithm__action_policy=name))
        kl[name] = rows(run_session(spec, tmp_path / name))["approx_kl"].iloc[0]
    assert kl["default"] == pytest.approx(0.0, abs=1e-6)
    assert kl["random"] > 1e-6
