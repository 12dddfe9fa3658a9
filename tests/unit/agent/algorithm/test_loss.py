"""Losses against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.agent.algorithm.loss import (
    ValueLoss,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    standardize,
    with_entropy,
)
from tests.support import seeded


def test_the_surrogate_clips_only_what_would_gain():
    """Ratios 1.5, 0.5, 1.5, 0.5 with advantages +1, +1, −1, −1 and ε = 0.2.

    min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5; min(−1.5, −1.2) = −1.5; min(−0.5, −0.8) =
    −0.8.
    """
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    loss = clipped_surrogate(ratio.log(), torch.zeros(4), advantage, 0.2).loss
    assert_close(loss, torch.tensor(0.6 / 4))


def test_no_gradient_flows_where_the_clip_holds():
    log_prob = torch.tensor([0.5, 0.0], requires_grad=True)
    clipped_surrogate(log_prob, torch.zeros(2), torch.ones(2), 0.2).loss.backward()
    assert log_prob.grad is not None
    assert_close(log_prob.grad, torch.tensor([0.0, -0.5]))


@pytest.mark.parametrize("log_ratio", [95.0, -200.0, float("-inf")])
def test_ratios_beyond_all_numbers_have_a_gradient(log_ratio):
    log_prob = torch.tensor([log_ratio, 0.0], requires_grad=True)
    surrogate = clipped_surrogate(log_prob, torch.zeros(2), torch.ones(2), 0.2)
    surrogate.loss.backward()
    first = 0.0
    if log_ratio > 0:
        first = 1.2
    assert_close(surrogate.loss, torch.tensor(-(first + 1.0) / 2))
    assert_close(log_prob.grad, torch.tensor([0.0, -0.5]))
    assert math.isfinite(surrogate.kl)


def test_the_value_loss_takes_the_worse_of_free_and_clipped():
    """V = 3 (clipped to 1.5), V_old = 1, target 2: max(1, 0.25) = 1; V = 1.2: max(0.64,
    0.64)."""
    value = torch.tensor([3.0, 1.2])
    old = torch.tensor([1.0, 1.0])
    squared = ValueLoss(nn.MSELoss, {})
    loss = clipped_value_loss(value, old, torch.tensor([2.0, 2.0]), 0.5, squared)
    assert_close(loss, torch.tensor((1.0 + 0.64) / 2))


def test_standardised_advantages_have_mean_zero_and_deviation_one():
    advantage = torch.tensor([1.0, 2.0, 3.0, 10.0])
    out = standardize(advantage, advantage)
    assert_close(out.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    assert_close(out.std(), torch.tensor(1.0))


def test_a_single_advantage_survives_standardisation():
    one = torch.tensor([3.0])
    assert standardize(one, one).tolist() == [3.0]


def test_the_kl_estimate_is_near_the_true_kl_of_categoricals():
    generator = seeded(0)
    old = torch.tensor([0.1, 0.3, 0.6]).log()
    new = torch.tensor([0.2, 0.3, 0.5]).log()
    actions = torch.multinomial(
        old.exp(), 200_000, replacement=True, generator=generator
    )
    true = (old.exp() * (old - new)).sum()
    surrogate = clipped_surrogate(new[actions], old[actions], torch.ones(200_000), 0.2)
    assert surrogate.kl == pytest.approx(true.item(), rel=0.05)


def test_clip_fraction_counts_ratios_outside_the_range():
    ratio = torch.tensor([0.7, 0.9, 1.1, 1.3])
    assert (
        clipped_surrogate(ratio.log(), torch.zeros(4), torch.ones(4), 0.2).clip_fraction
        == 0.5
    )


def test_a_perfect_critic_explains_everything_and_a_constant_one_nothing():
    target = torch.tensor([1.0, 2.0, 4.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(torch.zeros(3), target) == 0.0


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (nn.MSELoss, {}),
        (nn.L1Loss, {}),
        (nn.SmoothL1Loss, {"beta": 0.5}),
        (nn.HuberLoss, {"delta": 2.0}),
    ],
)
def test_without_weights_all_samples_of_a_value_loss_weigh_one(kind, arguments):
    generator = seeded(0)
    first, target = torch.randn(2, 48, generator=generator)
    loss_fn = ValueLoss(kind, arguments)
    gradients = []
    for weight in (None, torch.ones(48)):
        prediction = first.clone().requires_grad_()
        loss = loss_fn(prediction, target, weight)
        assert loss.item() == pytest.approx(
            loss_fn.elementwise(first, target).mean().item(), rel=1e-6
        )
        loss.backward()
        gradients.append(prediction.grad)
    assert_close(*gradients)


def test_a_weight_is_the_importance_of_its_sample():
    prediction = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = ValueLoss(nn.MSELoss, {})(
        prediction, torch.zeros(2), torch.tensor([0.5, 1.0])
    )
    assert loss.item() == 2.25  # (0.5 · 1 + 1 · 4) / 2
    loss.backward()
    assert prediction.grad.tolist() == [0.5, 2.0]


def test_an_entropy_without_weight_is_left_out():
    loss = torch.tensor(2.0)
    entropy = torch.tensor(3.0)
    assert with_entropy(loss, entropy, 0.0) is loss
    assert with_entropy(loss, entropy, 0.5).item() == 0.5
