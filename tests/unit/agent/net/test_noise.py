"""Noisy layers and dropout against their formulas, and where a network has them."""

import math

import pytest
import torch
from torch.nn.functional import layer_norm
from torch.testing import assert_close

from slm_lab.agent.net.layers import init_linear
from slm_lab.agent.net.noise import (
    Dropout,
    DropoutMasks,
    NoisyLinear,
    WeightNoise,
    factor,
)
from tests.support import randn, seeded
from tests.unit.agent.net.building import build


def layer(in_features=3, out_features=2, sigma=0.5):
    noisy = NoisyLinear(in_features, out_features, sigma)
    init_linear(noisy, None, 1.0, seeded(0))
    return noisy


def test_factors_of_noise_are_signed_square_roots():
    normal = torch.tensor([4.0, -9.0, 0.0, 0.25])
    assert factor(normal).tolist() == [2.0, -3.0, 0.0, 0.5]


def test_the_noise_of_a_weight_is_a_product_of_two_numbers():
    noisy = layer()
    noise = torch.tensor([[0.5, -1.0, 2.0, 3.0, -0.5]])
    of_inputs, of_outputs = noise[0, :3], noise[0, 3:]
    weight = noisy.weight + noisy.sigma_weight * torch.outer(of_outputs, of_inputs)
    bias = noisy.bias + noisy.sigma_bias * of_outputs
    x = randn(4, 3)
    with WeightNoise(noisy).applied(noise):
        assert_close(noisy(x), x @ weight.t() + bias)
    assert_close(noisy(x), x @ noisy.weight.t() + noisy.bias)


def test_each_part_of_a_batch_has_the_noise_of_its_row():
    noisy = layer()
    x = randn(6, 3)
    noise = WeightNoise(noisy)
    rows = noise.draw(3, seeded(1))
    with noise.applied(rows):
        together = noisy(x)
    for row in range(3):
        with noise.applied(rows[row : row + 1]):
            assert_close(together[2 * row : 2 * row + 2], noisy(x[2 * row :][:2]))


def test_sigma_begins_as_in_the_paper_and_sets_the_spread_of_the_outputs():
    """f(ε) has variance E|ε| = √(2/π); so a weight has σ² · 2/π."""
    noisy = layer(16, 4, sigma=0.5)
    assert_close(noisy.sigma_weight, torch.full((4, 16), 0.5 / math.sqrt(16)))
    assert_close(noisy.sigma_bias, torch.full((4,), 0.5 / math.sqrt(16)))
    x = randn(1, 16)
    noise = WeightNoise(noisy)
    with torch.no_grad(), noise.applied(noise.draw(20_000, seeded(2))):
        outputs = noisy(x.expand(20_000, 16))
    assert_close(outputs.mean(0), noisy(x)[0].detach(), atol=0.02, rtol=0)
    variance = (0.5**2 / 16) * (x.square().sum() * 2 / math.pi + math.sqrt(2 / math.pi))
    assert_close(outputs.var(0), variance.expand(4), rtol=0.05, atol=0)


def test_sigma_learns_only_with_noise():
    noisy = layer()
    noise = WeightNoise(noisy)
    numbers = noise.draw(1, seeded(0))
    x = randn(5, 3)
    with noise.applied(numbers):
        noisy(x).sum().backward()
    of_inputs, of_outputs = numbers[0, :3], numbers[0, 3:]
    assert_close(noisy.sigma_weight.grad, torch.outer(of_outputs, x.sum(0) * of_inputs))
    assert_close(noisy.sigma_bias.grad, 5 * of_outputs)
    quiet = layer()
    quiet(x).sum().backward()
    assert quiet.sigma_weight.grad is None


MLP = {"hid_layers": [8, 6]}
CONV = {"conv_hid_layers": [[4, 3, 1]], "fc_hid_layers": [8]}


@pytest.mark.parametrize(
    ("kind", "shape", "keys", "places"),
    [
        ("MLPNet", (5,), MLP, ["hidden.1", "heads.0"]),
        ("MLPNet", (5,), {"hid_layers": []}, ["heads.0"]),
        ("ConvNet", (1, 6, 6), CONV, ["tail.hidden.0", "tail.heads.0"]),
        (
            "DuelingConvNet",
            (1, 6, 6),
            CONV,
            ["streams.tail.hidden.0", "streams.tail.heads.0", "streams.tail.heads.1"],
        ),
    ],
)
def test_noisy_layers_are_those_that_see_no_observation_vector(
    kind, shape, keys, places
):
    net = build(kind, shape, heads=(3,), noisy=True, noisy_sigma=0.2, **keys)
    noisy = {
        name: part for name, part in net.named_modules() if type(part) is NoisyLinear
    }
    assert list(noisy) == places
    quiet = build(kind, shape, heads=(3,), **keys)
    x = randn(4, *shape)
    assert_close(net(x), quiet(x))  # the means are those of a net without noise
    first = noisy[places[0]]
    expected = 0.2 / math.sqrt(first.in_features)
    assert_close(first.sigma_bias, torch.full_like(first.sigma_bias, expected))


def test_a_net_without_noisy_layers_has_no_noise():
    assert not WeightNoise(build("MLPNet", (5,), **MLP))
    assert WeightNoise(build("MLPNet", (5,), noisy=True, **MLP))


@pytest.mark.parametrize("training", [False, True])
def test_dropout_zeroes_by_its_mask_and_keeps_the_mean(training):
    dropout = Dropout(4, 0.2).train(training)
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    mask = torch.tensor([[True, False, True, True]])
    with DropoutMasks(dropout).applied(mask):
        assert_close(dropout(x), torch.tensor([[1.25, 0.0, 3.75, 5.0]]))
    assert torch.equal(dropout(x), x)


def test_each_output_of_each_sample_is_dropped_with_the_probability():
    net = build("MLPNet", (5,), dropout=0.2, **MLP)
    masks = DropoutMasks(net)
    drawn = masks.draw(10_000, seeded(0))
    assert drawn.dtype == torch.bool
    assert_close(drawn.float().mean(0), torch.full((14,), 0.8), atol=0.02, rtol=0)
    assert torch.equal(drawn, masks.draw(10_000, seeded(0)))
    assert not DropoutMasks(build("MLPNet", (5,), **MLP))


@pytest.mark.parametrize("place", ["before", "after"])
def test_dropout_stands_before_the_layer_norm(place):
    keys = {"hid_layers": [6], "layer_norm": True, "norm_place": place}
    net = build("MLPNet", (5,), dropout=0.5, **keys)
    masks = DropoutMasks(net)
    mask = masks.draw(4, seeded(1))
    x = randn(4, 5)
    with masks.applied(mask):
        features = net.features(x)
    (linear,) = net.hidden
    if place == "before":
        expected = layer_norm(linear(x) * mask * 2, (6,)).relu()
    else:
        expected = layer_norm(linear(x).relu() * mask * 2, (6,))
    assert_close(features, expected)
