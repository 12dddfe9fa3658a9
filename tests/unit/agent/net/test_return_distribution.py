"""Distributions of the return against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from slm_lab.agent.net.dueling import dueling_q
from slm_lab.agent.net.return_distribution import (
    CategoricalReturn,
    ImplicitReturnNet,
    QuantileReturn,
    cosines,
    outputs_of,
    quantile_loss,
)
from tests.support import randn, seeded
from tests.unit.agent.net.building import build


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


def test_the_cosines_of_a_level_are_those_of_the_paper():
    levels = torch.tensor([[0.0, 0.5], [1.0, 0.25]])
    half = math.sqrt(0.5)
    expected = [
        [[1, 1, 1, 1], [1, 0, -1, 0]],
        [[1, -1, 1, -1], [1, half, 0, -half]],
    ]
    np.testing.assert_allclose(cosines(levels, 4).numpy(), expected, atol=1e-6)


SPLIT = {
    "MLPNet": ((5,), {"hid_layers": [8, 6]}),
    "DuelingMLPNet": ((5,), {"hid_layers": [8]}),
    "SimBaNet": ((5,), {"width": 8, "num_blocks": 2}),
    "ResNet": ((1, 6, 6), {"channels": [4], "fc_hid_layers": [8]}),
    "ConvNet": ((1, 6, 6), {"conv_hid_layers": [[4, 3, 1]], "fc_hid_layers": [8]}),
}


def implicit(kind, num_levels=3):
    shape, keys = SPLIT[kind]
    net = build(kind, shape, heads=(2,), **keys)
    returns = QuantileReturn(num_levels, 1.0)
    whole = ImplicitReturnNet(net, returns, num_cosines=4, generator=seeded(1))
    return whole, randn(3, *shape)


@pytest.mark.parametrize("kind", SPLIT)
def test_a_quantile_is_computed_from_the_product_of_both_embeddings(kind):
    whole, obs = implicit(kind)
    levels = torch.tensor([[0.1, 0.9], [0.5, 0.2], [0.3, 0.7]])
    quantiles = whole.distributions(obs, levels)
    assert quantiles.shape == (3, 2, 2)
    for row in range(3):
        for place in range(2):
            level = levels[row, place]
            angles = math.pi * torch.arange(4) * level
            phi = torch.relu(whole.embedding(angles.cos()))
            psi = whole.net.embed(obs)[row]
            (expected,) = whole.net.from_embedding((psi * phi)[None])
            torch.testing.assert_close(quantiles[row, :, place], expected[0])


@pytest.mark.parametrize("kind", SPLIT)
def test_the_parts_of_a_net_are_the_net(kind):
    whole, obs = implicit(kind)
    net = whole.net
    torch.testing.assert_close(net.from_embedding(net.embed(obs)), net(obs))
    assert net.embed(obs).shape == (3, net.embedded_width)


def test_without_levels_q_is_the_mean_of_quantiles_at_midpoints():
    whole, obs = implicit("MLPNet", num_levels=4)
    midpoints = torch.tensor([[0.125, 0.375, 0.625, 0.875]]).expand(3, -1)
    (q,) = whole(obs)
    torch.testing.assert_close(q, whole.distributions(obs, midpoints).mean(-1))
    torch.testing.assert_close(whole(obs)[0], q)


def test_the_loss_of_drawn_levels_is_that_of_the_paper():
    """Each prediction has the weight of its own τ; the sum is over predictions, the
    mean over samples of the target."""
    returns = QuantileReturn(32, 1.0)
    outputs = torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    target = torch.tensor([[0.5, 4.0, -1.0], [1.0, 1.5, 0.0]])
    levels = torch.tensor([[0.2, 0.6], [0.9, 0.5]])
    # the numbers |τ − [u < 0]| · L(u), summand by summand
    first = (0.2 * 0.125 + 0.2 * 3.5 + 0.8 * 0.5) / 3
    first += (0.4 * 1.0 + 0.6 * 1.5 + 0.4 * 2.5) / 3
    second = (0.9 * 0.125 + 0.1 * 0.5) / 3 + (0.5 * 0.125 + 0.5 * 0.5) / 3
    loss = returns.loss(outputs, target, levels)
    assert loss.tolist() == pytest.approx([first, second])
