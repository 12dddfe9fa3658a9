"""The multilayer perceptron."""

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import Head
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
