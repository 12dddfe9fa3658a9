"""The written-out multilayer perceptron against autograd."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net import array_layers
from slm_lab.agent.net.array_layers import FEW_NUMBERS, KERNELS
from slm_lab.agent.net.array_mlp import act_forward
from slm_lab.agent.net.layers import WIDE, EmptyLinear, Head, init_linear
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.policy_value import PolicyHead
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import LabError
from slm_lab.spec.role import net_for_role
from tests.contract.parts_table import PERCEPTRON
from tests.support import parse, ppo, q_learning
from tests.unit.agent.leaf import Leaf
from tests.unit.agent.net.building import assert_same_function


def net(heads=(3, 1), seed=0, **changes) -> MLPNet:
    keys = {f"agent__net__{key}": value for key, value in changes.items()}
    spec = net_for_role(parse(ppo(**keys)).agent, "actor")
    generator = torch.Generator().manual_seed(seed)
    return build_net(spec, (4,), [Head(dim, 1.0) for dim in heads], generator)


@pytest.mark.parametrize("activation", [torch.nn.Tanh, "tanh"])
def test_a_net_made_by_hand_equals_that_of_a_spec(activation):
    of_spec = net(hid_layers=[8, 8], hid_layers_activation="tanh", init_fn=None)
    by_hand = MLPNet(
        (4,),
        [8, 8],
        [Head(3, 1.0), Head(1, 1.0)],
        torch.Generator().manual_seed(0),
        activation=activation,
    )
    obs = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    for output, expected in zip(by_hand(obs), of_spec(obs), strict=True):
        assert torch.equal(output, expected)


def test_frozen_weights_pass_the_same_gradient_on():
    """As the critics of SAC do to its actor."""
    net_, obs = net(), torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    def gradient():
        given = obs.clone().requires_grad_()
        net_(given)[0].square().sum().backward()
        return given.grad

    with_weights = gradient()
    assert with_weights.abs().sum() > 0
    net_.requires_grad_(False)
    torch.testing.assert_close(gradient(), with_weights, rtol=0, atol=0)


@pytest.fixture
def multiplied(monkeypatch):
    """The shapes of the products that NumPy computes, and of those that torch
    computes."""
    by_numpy, by_torch = [], []

    def watched(seen, multiply):
        def call(a, b):
            seen.append((*a.shape, b.shape[1]))
            return multiply(a, b)

        return call

    monkeypatch.setattr(np, "dot", watched(by_numpy, np.dot))
    monkeypatch.setattr(
        array_layers, "_by_torch", watched(by_torch, array_layers._by_torch)
    )
    return by_numpy, by_torch


WIDE_NET = {"hid_layers": [WIDE, 2 * WIDE], "hid_layers_activation": "relu"}


@pytest.mark.parametrize(
    "changes", [{}, {"layer_norm": True}, {"hid_layers_activation": "silu"}]
)
def test_wide_layers_by_numpy_are_those_of_torch(changes, multiplied):
    """Under autograd. The first layer and the heads are too narrow for NumPy."""
    by_numpy, _ = multiplied
    plain = net(**WIDE_NET | changes)
    other = net(**WIDE_NET | changes, matmul="numpy")
    obs = torch.randn(3 * WIDE, 4, generator=torch.Generator().manual_seed(2))
    assert_same_function(other, plain, obs, obs)
    assert set(by_numpy) == {
        (3 * WIDE, WIDE, 2 * WIDE),
        (2 * WIDE, 3 * WIDE, WIDE),
        (3 * WIDE, 2 * WIDE, WIDE),
    }
    by_numpy.clear()
    plain(obs)
    other(obs[: WIDE - 1])
    assert by_numpy == []


@pytest.mark.parametrize("matmul", ["torch", "numpy"])
def test_torch_multiplies_large_matrices_unless_numpy_shall_multiply_all(
    matmul, multiplied
):
    """Of the three layers the second is large."""
    by_numpy, by_torch = multiplied
    net_, obs = (
        net(hid_layers=[64, 256], heads=(3,), matmul=matmul),
        np.zeros((80, 4), np.float32),
    )
    FlatParameters(net_)
    large = [(80, 64, 256), (256, 80, 64), (80, 256, 64)]
    net_.forward_array(obs)
    net_.forward_nodes(obs)[0].mean().backward()
    expected = [] if matmul == "numpy" else [large[0], *large]
    assert by_torch == expected
    assert set(large) <= {*by_numpy, *by_torch}
    assert {(80, 4, 64), (80, 256, 3)} <= set(by_numpy)


@pytest.mark.parametrize("wanted", [*product([True, False], repeat=3)])
@pytest.mark.parametrize(
    "shape", [(WIDE, WIDE), (WIDE - 1, WIDE), (2, WIDE, WIDE), (WIDE,)]
)
def test_a_layer_by_numpy_is_a_linear_layer(shape, wanted):
    """For every set of inputs that want a gradient: input, weight, bias."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    results = []
    for by_numpy in (True, False):
        layer = EmptyLinear(WIDE, WIDE)
        init_linear(layer, None, 1.0, torch.Generator().manual_seed(1))
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
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "keys", "shape"),
    [
        ("DuelingMLPNet", {"hid_layers": [64, 64]}, (4,)),
        ("HydraMLPNet", {"hid_layers": [[64], [64], [64]]}, (4,)),
        (
            "ConvNet",
            {"conv_hid_layers": [[4, 3, 2, 0, 1]], "fc_hid_layers": [64]},
            (1, 16, 16),
        ),
        ("RecurrentNet", {"fc_hid_layers": [64, 64], "rnn_hidden_size": 8}, (4,)),
        ("TorchArcNet", {"arc": PERCEPTRON}, (4,)),
    ],
)
def test_the_perceptron_of_every_net_has_the_library(name, keys, shape):
    base = partial(q_learning, "DQN") if name.startswith("Dueling") else ppo
    raw = base(agent__net={"type": name, "matmul": "numpy", **keys})
    spec = net_for_role(parse(raw).agent, "actor")
    built = build_net(spec, shape, [Head(2, 1.0)], torch.Generator().manual_seed(0))
    found = [
        each
        for each in built.modules()
        if isinstance(each, MLPNet) and len(each.hidden)
    ]
    assert found
    assert all(layer.by_numpy for each in found for layer in each.hidden)


def test_numpy_leaves_half_precision_and_other_devices_to_torch(multiplied):
    for changes in ({"precision": "bf16"}, {"layer_norm": True, "precision": "bf16"}):
        net(**WIDE_NET, **changes, matmul="numpy")(torch.zeros(WIDE, 4))
    away = net(**WIDE_NET, matmul="numpy").to("meta")
    for is_on in (True, False):
        with torch.set_grad_enabled(is_on):
            assert away(torch.zeros(WIDE, 4, device="meta"))[0].is_meta
    assert multiplied == ([], [])


@pytest.mark.parametrize("rows", [1, 16, 5000])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hid_layers": []},
        {"layer_norm": True},
        {"hid_layers_activation": "silu"},
        {"hid_layers_activation": "sigmoid"},
        {"hid_layers_activation": "relu"},
        {"out_layer_activation": "tanh"},
    ],
)
def test_outputs_for_acting_are_the_same(changes, rows):
    net_ = net(**changes)
    obs = torch.randn(rows, 4, generator=torch.Generator().manual_seed(0))
    acted = act_forward(net_, obs.numpy(), torch.device("cpu"))
    for left, right in zip(acted, net_(obs), strict=True):
        np.testing.assert_allclose(left, right.detach().numpy(), rtol=1e-4, atol=1e-5)


NODES = {
    "tanh": {},
    "relu": {"hid_layers_activation": "relu"},
    "linear": {"hid_layers": []},
    "large": WIDE_NET,
    "by numpy": {**WIDE_NET, "matmul": "numpy"},
}


@pytest.mark.parametrize("changes", NODES.values(), ids=NODES)
def test_gradients_without_autograd_are_those_of_autograd(changes):
    """Of two heads and the input. They add up, also after the flat vector has moved."""
    net_ = net(**changes)
    flat = FlatParameters(net_)
    values = torch.randn(8 * WIDE, 4, generator=torch.Generator().manual_seed(0))

    def gradient(*passes):
        flat.grad.zero_()
        for outputs in passes:
            backward(outputs)
        return flat.grad / len(passes)

    def backward(outputs):
        first, second = ((output * output.detach()).mean() for output in outputs)
        (first - 0.7 * second).backward()

    for _ in range(2):
        tensor, leaf = values.clone().requires_grad_(), Leaf(values)
        expected = gradient(net_(tensor))
        assert expected.abs().sum() > 0
        for given in (values.numpy(), leaf.node):
            found = gradient(*(net_.forward_nodes(given) for _ in range(2)))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(leaf.grad, tensor.grad, rtol=1e-4, atol=1e-7)
        flat.rebind(flat.vector * 1.5, flat.statistics)


def test_the_gradient_of_a_scale_that_does_not_depend_on_the_observation():
    head = PolicyHead(net(heads=(3,)), torch.tensor([0.1, -0.2, 0.3]))
    flat, obs = FlatParameters(head), torch.randn(8, 4)
    grads = []
    for (params,) in (head(obs), head.forward_nodes(obs.numpy())):
        flat.grad.zero_()
        (params * params.detach()).mean().backward()
        grads.append(flat.grad.clone())
    assert head.scale.grad.abs().min() > 0
    torch.testing.assert_close(*grads)


def test_a_forward_without_gradients_is_by_arrays(monkeypatch):
    net_, obs, seen = net(), torch.zeros(2, 4), []
    by_array = net_.forward_array
    monkeypatch.setattr(
        net_, "forward_array", lambda x: (seen.append(len(x)), by_array(x))[1]
    )
    net_(obs)
    assert seen == []
    with torch.no_grad():
        net_(obs)
    assert seen == [2]


def test_frozen_nodes_pass_the_gradient_on_and_keep_none():
    net_, leaf = net(), Leaf(torch.ones(8, 4))
    flat = FlatParameters(net_)
    net_.requires_grad_(False)
    net_.forward_nodes(leaf.node)[0].mean().backward()
    assert leaf.grad.abs().sum() > 0
    assert (flat.grad == 0).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float32])
def test_observations_are_of_any_type_and_order(dtype):
    """So many that torch multiplies, too."""
    net_ = net(hid_layers=[64, 256])
    obs = np.arange(320).reshape(80, 4).astype(dtype)[::-1]
    (acted, _), (expected, _) = (
        net_.forward_array(obs),
        net_(torch.tensor(obs.astype(np.float32))),
    )
    np.testing.assert_allclose(acted, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_acting_follows_the_parameters_wherever_they_are_put():
    """After a step in place, and after the flat vector has been bound to other
    memory."""
    net_ = net()
    flat = FlatParameters(net_)
    obs = np.ones((2, 4), np.float32)

    def check():
        (acted, _), (expected, _) = net_.forward_array(obs), net_(torch.from_numpy(obs))
        np.testing.assert_allclose(
            acted, expected.detach().numpy(), rtol=1e-5, atol=1e-6
        )
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
    monkeypatch.setattr(array_layers, "SLOW_TANH", slow)
    x = np.linspace(-12, 12, size, dtype=np.float32)
    x[:5] = 0.0, np.inf, -np.inf, 1e30, np.nan
    expected = np.tanh(x.astype(np.float64))
    KERNELS["Tanh"].apply(x)
    np.testing.assert_allclose(x, expected, rtol=0, atol=3e-7)
    assert np.abs(x[~np.isnan(x)]).max() == 1.0


@pytest.mark.parametrize("size", [FEW_NUMBERS - 1, FEW_NUMBERS + 3])
@pytest.mark.parametrize("name", KERNELS)
def test_activations_in_place_are_those_of_torch(name, size):
    x = np.linspace(-3, 3, size, dtype=np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    expected = getattr(nn, name)()(tensor)
    slope = torch.linspace(-1, 2, size)
    expected.backward(slope)
    grad = slope.numpy().copy()
    KERNELS[name].apply(x)
    KERNELS[name].backward(grad, x)
    np.testing.assert_allclose(x, expected.detach().numpy(), rtol=0, atol=3e-7)
    np.testing.assert_allclose(grad, tensor.grad.numpy(), rtol=0, atol=1e-6)


def test_no_weight_gradients_where_none_are_wanted():
    net_ = net()
    for parameter in net_.parameters():
        parameter.requires_grad_(False)
    obs = torch.randn(8, 4, requires_grad=True)
    net_(obs)[0].sum().backward()
    assert obs.grad is not None
    assert all(p.grad is None for p in net_.parameters())


def test_norm_layers_and_other_activations_take_the_general_path():
    obs = np.zeros((2, 4), np.float32)
    assert net().forward_array(obs) is not None
    assert net(layer_norm=True).forward_array(obs) is None
    assert net(hid_layers_activation="silu").forward_array(obs) is None
    assert isinstance(net(batch_norm=True).norms[0], nn.BatchNorm1d)


def test_no_hidden_layers_is_a_linear_model():
    net_ = net(hid_layers=[])
    obs = torch.randn(5, 4)
    assert torch.allclose(net_(obs)[0], net_.heads[0](obs))


def test_default_initialisation_has_the_range_of_torch():
    net_ = net(init_fn=None, hid_layers=[64])
    weight = net_.hidden[0].weight
    assert weight.abs().max() <= 0.5
    assert weight.abs().max() > 0.45


def test_orthogonal_heads_have_the_given_gain():
    spec = net_for_role(parse(ppo()).agent, "actor")
    net_ = build_net(spec, (4,), [Head(3, 0.01)], torch.Generator().manual_seed(0))
    gram = net_.heads[0].weight @ net_.heads[0].weight.t()
    torch.testing.assert_close(gram, 1e-4 * torch.eye(3), atol=1e-8, rtol=0)


@pytest.mark.parametrize("init_fn", [None, "kaiming_uniform_", "orthogonal_"])
def test_an_output_gain_holds_whatever_initialises_the_rest(init_fn):
    spec = net_for_role(parse(ppo(agent__net__init_fn=init_fn)).agent, "actor")
    net_ = build_net(spec, (4,), [Head(3, 0.0)], torch.Generator().manual_seed(0))
    assert (net_.heads[0].weight == 0).all()
    assert net_.hidden[0].weight.abs().sum() > 0


def test_images_are_refused_with_the_net_that_takes_them():
    spec = net_for_role(parse(ppo()).agent, "actor")
    with pytest.raises(LabError, match="images need ConvNet"):
        build_net(spec, (3, 84, 84), [Head(2, 1.0)], torch.Generator())


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
