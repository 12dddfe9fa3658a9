"""Each written-out distribution against autograd."""

import numpy as np
import torch
from torch.testing import assert_close

from slm_lab.agent.distribution.distributions import (
    Categorical,
    DiagonalNormal,
    TanhNormal,
)
from slm_lab.agent.fast.distributions import (
    ArrayCategorical,
    ArrayNormal,
    squashed_sample,
)
from tests.unit.agent.fast.gradient import assert_gradient, by_autograd, numbers

SIZE = 64
FACTOR = numbers(SIZE, seed=7)


def assert_as_autograd(kind, in_torch, params, action):
    """Log-probabilities and entropies, and the gradients of both."""
    policy = kind(params.numpy(), action)
    expected = in_torch(params)
    pairs = (
        (policy.log_prob, expected.log_prob(action)),
        (policy.entropy, expected.entropy()),
    )
    for found, wanted in pairs:
        assert_close(torch.from_numpy(found), wanted, rtol=1e-5, atol=1e-5)
    _, grad = by_autograd(
        lambda params: (in_torch(params).log_prob(action) * FACTOR).sum(), params
    )
    assert_gradient(policy.log_prob_gradient(FACTOR.numpy()), grad)
    _, grad = by_autograd(lambda params: 0.3 * in_torch(params).entropy().sum(), params)
    assert_gradient(policy.entropy_gradient(np.float32(0.3)), grad)


def test_the_categorical_distribution():
    action = torch.arange(SIZE) % 5
    assert_as_autograd(
        ArrayCategorical, Categorical, numbers(SIZE, 5, scale=3.0), action
    )


def test_the_normal_distribution():
    """Two of log σ are beyond its bounds, where it has no gradient."""
    action = numbers(SIZE, 3, seed=3)
    params = numbers(SIZE, 6)
    params[0, 3] = 2.5
    params[1, 4] = -21.0
    action[1, 1] = params[1, 1]
    assert_as_autograd(
        ArrayNormal, lambda x: DiagonalNormal(*x.chunk(2, -1)), params, action
    )


def test_the_squashed_normal_distribution():
    """Some actions are at the bounds, where e^|2u| is infinite. Two of log σ are beyond
    theirs."""
    noise = numbers(SIZE, 3, seed=3)
    params = numbers(SIZE, 6, scale=2.0)
    params[0, 3] = 2.5
    params[1, 4] = -21.0
    params[2, :3] = torch.tensor([60.0, -60.0, 9.0])
    of_action = numbers(SIZE, 3, seed=4)

    def loss(params):
        action, log_prob = TanhNormal(*params.chunk(2, -1)).with_log_prob(noise)
        return (of_action * action).sum() + (FACTOR * log_prob).sum()

    _, grad = by_autograd(loss, params)
    sample = squashed_sample(params.numpy(), noise)
    action, log_prob = TanhNormal(*params.chunk(2, -1)).with_log_prob(noise)
    assert_close(torch.from_numpy(sample.action), action)
    assert_close(torch.from_numpy(sample.log_prob), log_prob)
    found = torch.from_numpy(sample.backward(of_action.numpy(), FACTOR.numpy()))
    assert_close(found, grad, rtol=1e-5, atol=1e-5)


def assert_divergence_as_torch(kind, in_torch, params, old_params, action):
    """The divergences from older parameters, and the gradient of their sum with
    multipliers."""
    multiplier = torch.tensor([0.7, 3.0])
    divergence = kind(params.numpy(), action).divergence_from(old_params.numpy())

    def kl(params):
        return in_torch(params).kl_from(in_torch(old_params)).mean(0)

    wanted = kl(params)
    coefs = multiplier[: len(wanted)]
    assert_close(torch.from_numpy(divergence.mean), wanted, rtol=1e-5, atol=1e-6)
    _, grad = by_autograd(lambda params: (coefs * kl(params)).sum(), params)
    assert_gradient(divergence.gradient(coefs.numpy()), grad)


def test_the_divergence_of_categorical_distributions():
    assert_divergence_as_torch(
        kind=ArrayCategorical,
        in_torch=Categorical,
        params=numbers(SIZE, 5, scale=3.0),
        old_params=numbers(SIZE, 5, seed=2, scale=3.0),
        action=torch.arange(SIZE) % 5,
    )


def test_the_divergences_of_normal_distributions():
    """One log σ is beyond its bounds, where it has no gradient."""
    params = numbers(SIZE, 6)
    params[0, 3] = 2.5
    assert_divergence_as_torch(
        kind=ArrayNormal,
        in_torch=lambda x: DiagonalNormal(*x.chunk(2, -1)),
        params=params,
        old_params=numbers(SIZE, 6, seed=2),
        action=numbers(SIZE, 3, seed=3),
    )
