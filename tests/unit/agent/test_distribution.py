"""Distributions against torch.distributions, and their independence from global randomness."""

import gymnasium
import numpy as np
import pytest
import torch

from slm_lab.agent.distribution import Categorical, DiagonalNormal, distribution_family
from slm_lab.core.errors import LabError


def logits() -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 2


def normal_params() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 3, generator=generator), torch.randn(6, 3, generator=generator) * 0.5


def test_categorical_agrees_with_torch():
    ours, theirs = Categorical(logits()), torch.distributions.Categorical(logits=logits())
    actions = torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits().argmax(-1))


def test_normal_agrees_with_torch():
    mean, log_std = normal_params()
    ours = DiagonalNormal(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    action = mean + 0.3
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean)


def test_categorical_samples_have_the_given_frequencies():
    probs = torch.tensor([0.1, 0.2, 0.7])
    draws = Categorical(probs.log().expand(100_000, 3)).sample(torch.Generator().manual_seed(0))
    frequency = torch.bincount(draws, minlength=3) / len(draws)
    torch.testing.assert_close(frequency, probs, atol=0.01, rtol=0)


def test_normal_samples_have_the_given_moments():
    mean, log_std = torch.tensor([1.0, -2.0]), torch.tensor([0.5, -1.0])
    shape = (100_000, 2)
    policy = DiagonalNormal(mean.expand(shape), log_std.expand(shape))
    draws = policy.sample(torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(draws.std(0), log_std.exp(), atol=0.02, rtol=0)


@pytest.mark.parametrize(
    "policy", [Categorical(logits()), DiagonalNormal(*normal_params())], ids=["cat", "normal"]
)
def test_samples_depend_on_the_given_generator_only(policy):
    torch.manual_seed(1)
    first = policy.sample(torch.Generator().manual_seed(5))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = policy.sample(torch.Generator().manual_seed(5))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_the_family_follows_from_the_action_space():
    discrete = distribution_family(gymnasium.spaces.Discrete(3), "default")
    assert (discrete.param_dim, discrete.action_shape) == (3, ())
    box = distribution_family(gymnasium.spaces.Box(-1, 1, (2,), np.float32), "Normal")
    assert (box.param_dim, box.action_shape, box.free_log_std_dim) == (4, (2,), 2)


def test_a_distribution_that_does_not_fit_is_refused_with_the_one_that_does():
    with pytest.raises(LabError, match='use "default" or "Normal"'):
        distribution_family(gymnasium.spaces.Box(-1, 1, (2,), np.float32), "Categorical")
    with pytest.raises(LabError, match='use "default" or "Categorical"'):
        distribution_family(gymnasium.spaces.Discrete(2), "Normal")
