"""Networks of arrays against the networks of torch."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.testing import assert_close

from slm_lab.agent.fast import networks as layers
from slm_lab.agent.fast.networks import FEW_NUMBERS, KERNELS, TracedNet, array_net
from slm_lab.agent.fast.product import WIDE
from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import Head
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.policy_value import PolicyHead
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.spec.schema.agent import net_for_role
from tests.contract.parts_table import PERCEPTRON
from tests.support import parse, ppo
from tests.unit.agent.fast.gradient import numbers
from tests.unit.agent.net.building import build

WIDE_NET = {"hid_layers": [WIDE, 2 * WIDE], "hid_layers_activation": "relu"}


def net(heads=(3, 1), seed=0, **changes) -> MLPNet:
    keys = {f"agent__net__{key}": value for key, value in changes.items()}
    spec = net_for_role(parse(ppo(**keys)).agent, "actor")
    generator = torch.Generator().manual_seed(seed)
    return build_net(spec, (4,), [Head(dim, 1.0) for dim in heads], generator)


@pytest.mark.parametrize("rows", [1, 16, 5000])
@pytest.mark.parametrize("changes", [{}, {"hid_layers": []}, WIDE_NET])
def test_outputs_for_acting_are_those_of_torch(changes, rows):
    net_ = net(**changes)
    obs = numbers(rows, 4)
    acted = array_net(net_).forward(obs.numpy())
    for left, right in zip(acted, net_(obs), strict=True):
        assert_allclose(left, right.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_net_on_another_device_stays_with_torch():
    assert array_net(net()) is not None
    assert array_net(net().to("meta")) is None


NETS = {
    "tanh": {},
    "relu": {"hid_layers_activation": "relu"},
    "linear": {"hid_layers": []},
    "large": WIDE_NET,
    "by numpy": {**WIDE_NET, "matmul": "numpy"},
}


def backward(outputs, grads):
    torch.autograd.backward(outputs, grads)


@pytest.mark.parametrize("changes", NETS.values(), ids=NETS)
def test_gradients_are_those_of_autograd(changes):
    """Of two heads and the input. They add up, also after the flat vector has moved."""
    net_ = net(**changes)
    flat = FlatParameters(net_)
    arrays = array_net(net_)
    obs = numbers(8 * WIDE, 4)
    grads = [numbers(8 * WIDE, dim, seed=dim) for dim in (3, 1)]
    for _ in range(2):
        tensor = obs.clone().requires_grad_()
        flat.grad.zero_()
        backward(net_(tensor), grads)
        expected = flat.grad.clone()
        assert expected.abs().sum() > 0
        for passes_on in (True, False):
            flat.grad.zero_()
            for _ in range(2):
                trace = arrays.trace(obs.numpy(), passes_on=passes_on)
                of_obs = trace.backward(*(grad.numpy() for grad in grads))
            scale = expected.abs().max()
            assert_close(flat.grad / 2, expected, rtol=1e-4, atol=1e-6 * scale)
            if passes_on:
                found = torch.from_numpy(of_obs)
                assert_close(found, tensor.grad, rtol=1e-4, atol=1e-5)
        flat.rebind(flat.vector * 1.5, flat.statistics)


def test_a_pass_that_does_not_learn_passes_the_gradient_on_and_keeps_none():
    net_ = net()
    flat = FlatParameters(net_)
    trace = array_net(net_).trace(np.ones((8, 4)), learns=False, passes_on=True)
    grads = [np.ones_like(output) for output in trace.outputs]
    assert np.abs(trace.backward(*grads)).sum() > 0
    assert (flat.grad == 0).all()


def test_the_gradient_of_a_scale_that_does_not_depend_on_the_observation():
    head = PolicyHead(net(heads=(3,)), torch.tensor([0.1, -0.2, 0.3]))
    flat = FlatParameters(head)
    obs = numbers(8, 4)
    grad = numbers(8, 6, seed=1)
    backward(head(obs), [grad])
    expected = flat.grad.clone()
    assert head.scale.grad.abs().min() > 0
    flat.grad.zero_()
    trace = array_net(head).trace(obs.numpy())
    trace.backward(grad.numpy())
    assert_close(flat.grad, expected)
    assert_close(torch.from_numpy(trace.outputs[0]), head(obs)[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float32])
def test_observations_are_of_any_type_and_order(dtype):
    """So many that torch multiplies, too."""
    net_ = net(hid_layers=[64, 256])
    obs = np.arange(320).reshape(80, 4).astype(dtype)[::-1]
    acted, _ = array_net(net_).forward(obs)
    expected, _ = net_(torch.tensor(obs.astype(np.float32)))
    assert_allclose(acted, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_acting_follows_the_parameters_wherever_they_are_put():
    """After a step in place, and after the flat vector has been bound to other
    memory."""
    net_ = net()
    flat = FlatParameters(net_)
    arrays = array_net(net_)
    obs = np.ones((2, 4), np.float32)

    def check():
        (acted, _) = arrays.forward(obs)
        (expected, _) = net_(torch.from_numpy(obs))
        assert_allclose(acted, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        return acted

    first = check()
    flat.vector.mul_(0.5)
    second = check()
    flat.rebind(flat.vector + 1, flat.statistics)
    third = check()
    assert not np.allclose(first, second)
    assert not np.allclose(second, third)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("size", [FEW_NUMBERS - 1, FEW_NUMBERS + 3])
def test_tanh_is_exact_to_float32_on_every_processor(monkeypatch, slow, size):
    monkeypatch.setattr(layers, "SLOW_TANH", slow)
    x = np.linspace(-12, 12, size, dtype=np.float32)
    x[:5] = 0.0, np.inf, -np.inf, 1e30, np.nan
    expected = np.tanh(x.astype(np.float64))
    KERNELS[torch.tanh].apply(x)
    assert_allclose(x, expected, rtol=0, atol=3e-7)
    assert np.abs(x[~np.isnan(x)]).max() == 1.0


@pytest.mark.parametrize("size", [FEW_NUMBERS - 1, FEW_NUMBERS + 3])
@pytest.mark.parametrize("activation", KERNELS)
def test_activations_in_place_are_those_of_torch(activation, size):
    x = np.linspace(-3, 3, size, dtype=np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    expected = activation(tensor)
    slope = torch.linspace(-1, 2, size)
    expected.backward(slope)
    grad = slope.numpy().copy()
    KERNELS[activation].apply(x)
    KERNELS[activation].backward(grad, x)
    assert_allclose(x, expected.detach().numpy(), rtol=0, atol=3e-7)
    assert_allclose(grad, tensor.grad.numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "has_arrays"),
    [
        ({}, True),
        ({"layer_norm": True}, False),
        ({"batch_norm": True}, False),
        ({"hid_layers_activation": "silu"}, False),
        ({"out_layer_activation": "tanh"}, False),
    ],
)
def test_norm_layers_and_other_activations_are_left_to_torch(changes, has_arrays):
    assert (array_net(net(**changes)) is not None) == has_arrays


def test_layers_whose_weights_are_computed_are_left_to_torch():
    net_ = net()
    nn.utils.parametrizations.spectral_norm(net_.hidden[0])
    assert array_net(net_) is None


@pytest.mark.parametrize(
    ("kind", "keys", "learns"),
    [
        ("DuelingMLPNet", {"hid_layers": [8]}, False),
        ("TorchArcNet", {"arc": PERCEPTRON}, True),
    ],
)
def test_other_nets_of_plain_layers_are_arrays_too(kind, keys, learns):
    net_ = build(kind, (4,), heads=(3,), **keys)
    arrays = array_net(net_)
    obs = numbers(8, 4)
    (acted,) = arrays.forward(obs.numpy())
    (expected,) = net_(obs)
    assert_allclose(acted, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert isinstance(arrays, TracedNet) == learns
