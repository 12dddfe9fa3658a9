"""The multilayer perceptron."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import WIDE, EmptyLinear, Head, init_linear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.agent import net_for_role
from tests.support import parse, ppo, randn, seeded


def net(heads=(3, 1), seed=0, **changes) -> MLPNet:
    keys = {f"agent__net__{key}": value for key, value in changes.items()}
    spec = net_for_role(parse(ppo(**keys)).agent, "actor")
    generator = seeded(seed)
    return build_net(spec, (4,), [Head(dim, 1.0) for dim in heads], generator)


@pytest.mark.parametrize("activation", [torch.nn.Tanh, "tanh"])
def test_a_net_made_by_hand_equals_that_of_a_spec(activation):
    of_spec = net(hid_layers=[8, 8], hid_layers_activation="tanh", init_fn=None)
    by_hand = MLPNet(
        (4,),
        [8, 8],
        [Head(3, 1.0), Head(1, 1.0)],
        seeded(0),
        activation=activation,
    )
    obs = randn(5, 4, seed=1)
    assert_close(by_hand(obs), of_spec(obs), rtol=0, atol=0)


def test_frozen_weights_pass_the_same_gradient_on():
    """As the critics of SAC do to its actor."""
    net_ = net()
    obs = randn(8, 4)

    def gradient():
        given = obs.clone().requires_grad_()
        net_(given)[0].square().sum().backward()
        return given.grad

    with_weights = gradient()
    assert with_weights.abs().sum() > 0
    net_.requires_grad_(False)
    assert_close(gradient(), with_weights, rtol=0, atol=0)


@pytest.fixture
def multiplied(monkeypatch):
    """The shapes of the products that NumPy computes."""
    shapes = []
    dot = np.dot

    def watched(a, b):
        shapes.append((*a.shape, b.shape[1]))
        return dot(a, b)

    monkeypatch.setattr(np, "dot", watched)
    return shapes


WIDE_NET = {"hid_layers": [WIDE, 2 * WIDE], "hid_layers_activation": "relu"}


@pytest.mark.parametrize("wanted", [*product([True, False], repeat=3)])
@pytest.mark.parametrize(
    "shape", [(WIDE, WIDE), (WIDE - 1, WIDE), (2, WIDE, WIDE), (WIDE,)]
)
def test_a_layer_by_numpy_is_a_linear_layer(shape, wanted):
    """For every set of inputs that want a gradient: input, weight, bias."""
    x = randn(shape)
    results = []
    for by_numpy in (True, False):
        layer = EmptyLinear(WIDE, WIDE)
        init_linear(layer, None, 1.0, seeded(1))
        layer.by_numpy = by_numpy
        inputs = (x.clone(), layer.weight, layer.bias)
        for each, wants in zip(inputs, wanted, strict=True):
            each.requires_grad_(wants)
        output = layer(inputs[0])
        if any(wanted):
            output.square().mean().backward()
        results.append((output, *(each.grad for each in inputs)))
    for left, right in zip(*results, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_numpy_leaves_half_precision_and_other_devices_to_torch(multiplied):
    for changes in ({"precision": "bf16"}, {"layer_norm": True, "precision": "bf16"}):
        net(**WIDE_NET, **changes, matmul="numpy")(torch.zeros(WIDE, 4))
    away = net(**WIDE_NET, matmul="numpy").to("meta")
    for is_on in (True, False):
        with torch.set_grad_enabled(is_on):
            assert away(torch.zeros(WIDE, 4, device="meta"))[0].is_meta
    assert multiplied == []


def test_default_initialisation_has_the_range_of_torch():
    net_ = net(init_fn=None, hid_layers=[64])
    weight = net_.hidden[0].weight
    assert weight.abs().max() <= 0.5
    assert weight.abs().max() > 0.45


def test_as_many_output_activations_as_heads():
    with pytest.raises(LabError, match="names 3 activations, the network has 2 heads"):
        net(out_layer_activation=["tanh", None, None])
    out = net(out_layer_activation=["tanh", None])(torch.randn(64, 4) * 100)
    assert out[0].abs().max() <= 1


def test_the_weight_of_an_activation_after_the_output_is_trained():
    made = net(out_layer_activation="prelu")
    assert any(parameter.shape == (1,) for parameter in made.parameters())
    flat = FlatParameters(made)
    sum(out.sum() for out in made(-torch.ones(4, 4))).backward()
    assert flat.grad.count_nonzero() > 0
