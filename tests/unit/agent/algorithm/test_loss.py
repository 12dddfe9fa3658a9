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
    kl_penalty,
    multiplier_loss,
    standardize,
    target_weights,
    temperature_loss,
    top_half,
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


ADVANTAGE = torch.tensor([0.0, 2.0, -1.0, 2.0 + 2.0 * math.log(3.0)])
"""At η = 2 the better half, of 2 and 2 + 2 ln 3, has weights e and 3 e."""
NO_CORRECTION = torch.zeros(4)


def test_weights_are_a_softmax_over_the_better_half_and_zero_elsewhere():
    eta = torch.tensor(2.0)
    top = top_half(ADVANTAGE, NO_CORRECTION, eta)
    weights = target_weights(ADVANTAGE, NO_CORRECTION, eta, top)
    assert_close(weights, torch.tensor([0.0, 0.25, 0.0, 0.75]))
    assert (top.least.item(), top.size.item()) == (2.0, 2)


def test_the_loss_of_the_temperature_and_its_gradient():
    """L_η = 2 ε + 2 ln(4 e / 2) = 0.2 + 2 + 2 ln 2. Its gradient is ε plus ln(4 e / 2)
    less the mean of Â/η under the weights, ¼ 1 + ¾ (1 + ln 3)."""
    eta = torch.tensor(2.0, requires_grad=True)
    loss = temperature_loss(eta, 0.1, top_half(ADVANTAGE, NO_CORRECTION, eta))
    loss.backward()
    assert loss.item() == pytest.approx(0.2 + 2.0 + 2.0 * math.log(2.0))
    expected = 0.1 + 1.0 + math.log(2.0) - (1.0 + 0.75 * math.log(3.0))
    assert eta.grad.item() == pytest.approx(expected, rel=1e-5)


def test_the_best_temperature_keeps_the_weights_as_far_from_equal_ones_as_the_bound():
    """Σ ψ ln(ψ |D̃|) = ε_η where the gradient of L_η is zero."""
    advantage = 3.0 * torch.randn(64, generator=seeded(0))
    log_rho = torch.zeros(64)
    log_eta = torch.tensor(0.0, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [log_eta], max_iter=200, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        eta = log_eta.exp()
        loss = temperature_loss(eta, 0.3, top_half(advantage, log_rho, eta))
        loss.backward()
        return loss

    optimizer.step(closure)
    eta = log_eta.detach().exp()
    top = top_half(advantage, log_rho, eta)
    weights = target_weights(advantage, log_rho, eta, top)
    weights = weights[weights > 0]
    assert len(weights) == 32
    assert (weights * (32 * weights).log()).sum().item() == pytest.approx(0.3, rel=1e-2)


def test_a_sample_that_counts_twice_has_twice_the_weight():
    log_rho = torch.tensor([0.0, math.log(2.0), 5.0, 0.0])
    eta = torch.tensor(2.0)
    top = top_half(ADVANTAGE, log_rho, eta)
    weights = target_weights(ADVANTAGE, log_rho, eta, top)
    assert_close(weights, torch.tensor([0.0, 0.4, 0.0, 0.6]))
    loss = temperature_loss(eta, 0.1, top)
    assert loss.item() == pytest.approx(0.2 + 2.0 + 2.0 * math.log(2.5))


@pytest.mark.parametrize(
    ("advantage", "inside"),
    [
        ([3.0], [1]),
        ([1.0, 2.0, 3.0], [0, 1, 1]),
        ([1.0, 1.0, 1.0, 1.0], [1, 1, 1, 1]),
        ([2.0, 1.0, 1.0, 1.0], [1, 1, 1, 1]),
    ],
)
def test_the_better_half_has_the_middle_one_and_whatever_equals_it(advantage, inside):
    values = torch.tensor(advantage)
    eta = torch.tensor(1e-3)
    top = top_half(values, torch.zeros_like(values), eta)
    assert (values >= top.least).int().tolist() == inside
    assert top.size.item() == sum(inside)


def test_parts_of_a_batch_have_the_weights_of_the_whole():
    eta = torch.tensor(0.7)
    top = top_half(ADVANTAGE, NO_CORRECTION, eta)
    whole = target_weights(ADVANTAGE, NO_CORRECTION, eta, top)
    parts = [
        target_weights(part, torch.zeros_like(part), eta, top)
        for part in ADVANTAGE.split([1, 3])
    ]
    assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("eta", [1e-8, 1e8])
def test_weights_are_finite_at_every_temperature(eta):
    temperature = torch.tensor(eta, requires_grad=True)
    top = top_half(ADVANTAGE, NO_CORRECTION, temperature)
    loss = temperature_loss(temperature, 0.1, top)
    loss.backward()
    weights = target_weights(ADVANTAGE, NO_CORRECTION, temperature, top)
    assert weights.sum().item() == pytest.approx(1.0)
    assert math.isfinite(loss.item())
    assert temperature.grad.isfinite()


def test_multipliers_rise_with_divergences_beyond_their_bounds():
    """0.5 (0.1 − 0.3) + 2 (0.01 − 0.004), whose gradient is ε − KL for α and nothing
    for the policy; the penalty 0.5 · 0.3 + 2 · 0.004 is the other way round."""
    multiplier = torch.tensor([0.5, 2.0], requires_grad=True)
    kl = torch.tensor([0.3, 0.004], requires_grad=True)
    loss = multiplier_loss(multiplier, kl, (0.1, 0.01))
    penalty = kl_penalty(kl, multiplier)
    (loss + penalty).backward()
    assert loss.item() == pytest.approx(-0.088)
    assert penalty.item() == pytest.approx(0.158)
    assert_close(multiplier.grad, torch.tensor([-0.2, 0.006]))
    assert_close(kl.grad, multiplier.detach())
