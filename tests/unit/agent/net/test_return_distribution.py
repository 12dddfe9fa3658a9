"""Distributions of the return against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from slm_lab.agent.net.dueling import dueling_q
from slm_lab.agent.net.return_distribution import (
    CategoricalReturn,
    QuantileReturn,
    outputs_of,
    quantile_loss,
)
from tests.support import randn


def certain(*numbers):
    """Logits of distributions that have all their mass in one place."""
    logits = torch.full((len(numbers), 5), -50.0)
    logits[torch.arange(len(numbers)), torch.tensor(numbers)] = 50.0
    return logits


FIVE = CategoricalReturn(5, -2.0, 2.0)
"""The returns −2, −1, 0, 1 and 2."""


@pytest.mark.parametrize(
    ("reward", "discount", "place", "expected"),
    [
        (0.0, 1.0, 3, [0, 0, 0, 1, 0]),
        (0.25, 0.5, 3, [0, 0, 0.25, 0.75, 0]),  # 0.75
        (-0.4, 1.0, 0, [1, 0, 0, 0, 0]),  # −2.4, cut
        (1.5, 1.0, 4, [0, 0, 0, 0, 1]),  # 3.5, cut
        (0.3, 0.0, 4, [0, 0, 0.7, 0.3, 0]),  # the end of an episode
    ],
)
def test_the_projection_shares_a_mass_between_two_neighbours(
    reward, discount, place, expected
):
    target = FIVE.target(
        torch.tensor([reward]), torch.tensor([discount]), certain(place)
    )
    np.testing.assert_allclose(target[0].numpy(), expected, atol=1e-6)


def test_the_projection_keeps_mass_and_mean_inside_the_bounds():
    outputs = randn(64, 5)
    reward = 0.1 * randn(64, seed=1)
    discount = torch.full((64,), 0.8)
    target = FIVE.target(reward, discount, outputs)
    torch.testing.assert_close(target.sum(-1), torch.ones(64))
    mean = target @ torch.arange(-2.0, 3.0)
    torch.testing.assert_close(mean, reward + discount * FIVE.mean(outputs))


def test_the_categorical_loss_is_the_cross_entropy():
    target = torch.tensor([[0.25, 0.75, 0.0, 0.0, 0.0]])
    outputs = torch.log(torch.tensor([[0.5, 0.2, 0.1, 0.1, 0.1]]))
    expected = -(0.25 * math.log(0.5) + 0.75 * math.log(0.2))
    assert FIVE.loss(outputs, target).item() == pytest.approx(expected)
    assert FIVE.mean(outputs).item() == pytest.approx(-1.0 - 0.2 + 0.1 + 0.2)


def test_the_quantile_loss_is_that_of_the_paper():
    """Two quantiles at ¼ and ¾, three samples; κ = 1: quadratic up to 1."""
    quantiles = torch.tensor([[0.0, 2.0]])
    samples = torch.tensor([[0.5, -1.0, 4.0]])
    levels = torch.tensor([0.25, 0.75])
    first = (0.25 * 0.125 + 0.75 * 0.5 + 0.25 * 3.5) / 3
    second = (0.25 * 1.0 + 0.25 * 2.5 + 0.75 * 1.5) / 3
    loss = quantile_loss(quantiles, levels, samples, kappa=1.0)
    assert loss.item() == pytest.approx(first + second)
    absolute = quantile_loss(quantiles, levels, samples, kappa=0.0).item()
    first = (0.25 * 0.5 + 0.75 * 1.0 + 0.25 * 4.0) / 3
    second = (0.25 * 1.5 + 0.25 * 3.0 + 0.75 * 2.0) / 3
    assert absolute == pytest.approx(first + second)


@pytest.mark.parametrize("kappa", [0.0, 0.1])
def test_the_quantile_loss_finds_the_quantiles_of_samples(kappa):
    returns = QuantileReturn(4, kappa)
    samples = 10 * torch.rand(512, generator=torch.Generator().manual_seed(0))
    quantiles = torch.zeros(1, 4, requires_grad=True)
    optimizer = torch.optim.Adam([quantiles], lr=0.1)
    for _ in range(800):
        optimizer.zero_grad()
        returns.loss(quantiles, samples[None]).sum().backward()
        optimizer.step()
    expected = torch.quantile(samples, (torch.arange(4) + 0.5) / 4)
    assert (quantiles[0] - expected).abs().max() < 0.25


def test_targets_of_quantiles_move_and_shrink():
    returns = QuantileReturn(2, 1.0)
    target = returns.target(
        torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([[2.0, 4.0]])
    )
    assert target.tolist() == [[2.0, 3.0]]
    assert returns.mean(target).tolist() == [2.5]


def test_the_outputs_of_actions_are_chosen_by_row():
    outputs = torch.arange(12.0).view(2, 3, 2)
    assert outputs_of(outputs, torch.tensor([2, 0])).tolist() == [[4, 5], [6, 7]]


def test_each_output_of_a_distribution_is_duelled_alone():
    value = randn(7, 4)
    advantage = randn(7, 12, seed=1)
    both = dueling_q(value, advantage).view(7, 3, 4)
    for k in range(4):
        alone = dueling_q(value[:, k : k + 1], advantage.view(7, 3, 4)[:, :, k])
        torch.testing.assert_close(both[:, :, k], alone)
