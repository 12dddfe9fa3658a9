"""Products in bfloat16: which they are, and how far they may be from float32."""

import pytest
import torch
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

from slm_lab.agent.fast.networks import array_net
from slm_lab.agent.from_spec.net import with_precision
from slm_lab.agent.net import layers as precision
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.spec.schema.mlp import MLPNetSpec
from tests.support import randn
from tests.unit.agent.net.building import build, images

WIDE = {"hid_layers": [32, 32, 32]}
CONV = {
    "conv_hid_layers": [[8, 5, 2], [8, 3, 1]],
    "fc_hid_layers": [32],
    "normalize": True,
}
ARC = {
    "arc": {
        "modules": {
            "body": {
                "Sequential": [
                    {"LazyLinear": {"out_features": 32}},
                    {"Sigmoid": None},
                    {"LazyLinear": {"out_features": 32}},
                    {"Sigmoid": None},
                ]
            }
        }
    }
}
RECURRENT = {"fc_hid_layers": [32, 32], "rnn_hidden_size": 16, "seq_len": 4}
NORMS = {"layer_norm": True, "batch_norm": "renorm"}
VECTOR = (9,)
IMAGE = (3, 14, 12)

NETS = {
    "perceptron": ("MLPNet", VECTOR, WIDE, 2),
    "normalised": ("MLPNet", VECTOR, {**WIDE, **NORMS, "norm_place": "after"}, 2),
    "dueling": ("DuelingMLPNet", VECTOR, WIDE, 2),
    "hydra": ("HydraMLPNet", VECTOR, {"hid_layers": [[32], [32], [16]]}, 2),
    "hydra without trunk": (
        "HydraMLPNet",
        VECTOR,
        {"hid_layers": [[], [], [[32, 32]]]},
        1,
    ),
    "arc": ("TorchArcNet", VECTOR, ARC, 1),
    "images": ("ConvNet", IMAGE, CONV, 3),
    "normalised images": ("ConvNet", IMAGE, {**CONV, **NORMS}, 3),
    "residual images": (
        "ResNet",
        IMAGE,
        {"channels": [4, 8], "fc_hid_layers": [32], "normalize": True},
        11,
    ),
    "dueling images": ("DuelingConvNet", IMAGE, CONV, 3),
    "recurrent": ("RecurrentNet", VECTOR, RECURRENT, 1),
    "residual": ("SimBaNet", VECTOR, {"width": 32, "num_blocks": 2}, 4),
}
"""The kind of net, its observations, its keys, and its products in bfloat16."""


class Products(TorchDispatchMode):
    """Counts products by the type of their numbers."""

    def __init__(self):
        super().__init__()
        self.dtypes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (
            torch.ops.aten.addmm,
            torch.ops.aten.mm,
            torch.ops.aten.convolution,
            torch.ops.aten.linear,
        ):
            self.dtypes.append(args[1].dtype)
        return func(*args, **(kwargs or {}))


def both(kind, shape, keys, heads=(3,)):
    return [
        build(kind, shape, heads, precision=name, **keys)
        for name in ("float32", "bf16")
    ]


def observations(shape):
    if len(shape) == 3:
        return images(shape, 16)
    return randn(16, *shape)


def gradient(net, obs):
    (output,) = net(obs)
    assert output.dtype == torch.float32
    output.square().mean().backward()
    grads = [p.grad for p in net.parameters()]
    assert all(grad.dtype == torch.float32 for grad in grads)
    return output.detach(), torch.cat([grad.flatten() for grad in grads])


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize(
    ("kind", "shape", "keys", "count"), NETS.values(), ids=list(NETS)
)
def test_hidden_products_are_in_bf16_and_all_else_in_float32(kind, shape, keys, count):
    exact, half = both(kind, shape, keys)
    obs = observations(shape)
    # a state of zeros, and the mark of a row that starts a sequence
    if kind == "RecurrentNet":
        obs = pad(pad(obs, (0, exact.state_size)), (0, 1), value=1.0)
    with Products() as seen:
        half(obs)
    assert seen.dtypes.count(torch.bfloat16) == count
    assert seen.dtypes[-1] == torch.float32
    assert seen.dtypes[0] == (torch.bfloat16 if len(shape) == 3 else torch.float32)
    (output, grad) = gradient(half, obs)
    (expected, expected_grad) = gradient(exact, obs)
    assert 0 < distance(output, expected) < 0.02
    assert 0 < distance(grad, expected_grad) < 0.2


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_arrays_are_rounded_as_by_autocast(activation):
    """Acting and learning without autograd. The last activation is not rounded before a
    head."""
    exact, half = both("MLPNet", VECTOR, {**WIDE, "hid_layers_activation": activation})
    obs = observations(VECTOR)
    expected, by_autograd = gradient(half, obs)
    _, in_float32 = gradient(exact, obs)
    flat = FlatParameters(half)
    with Products() as seen:
        trace = array_net(half).trace(obs.numpy())
    (acted,) = trace.outputs
    assert seen.dtypes == [torch.bfloat16] * 2
    assert distance(torch.from_numpy(acted), expected) < 1e-6
    flat.grad.zero_()
    trace.backward(2 * acted / acted.size)
    assert 0 < distance(flat.grad, by_autograd) < 0.02
    assert 0 < distance(flat.grad, in_float32) < 0.2


@pytest.mark.parametrize("by_array", [True, False])
def test_a_weight_that_another_process_changes_is_read_again(by_array):
    net = both("MLPNet", VECTOR, WIDE)[1]
    obs = observations(VECTOR)
    with torch.set_grad_enabled(not by_array):
        (before,) = net(obs)
        net.hidden[1].weight.data.mul_(2)
        (after,) = net(obs)
    assert distance(after, before) > 0.1


@pytest.mark.parametrize(("has", "chosen"), [(True, "bf16"), (False, "float32")])
def test_auto_is_bf16_where_the_processor_has_it(has, chosen, monkeypatch):
    monkeypatch.setattr(precision, "has_bf16", lambda device: has)
    assert (
        with_precision(MLPNetSpec(type="MLPNet", precision="auto")).precision == chosen
    )
    for given in ("float32", "bf16"):
        assert (
            with_precision(MLPNetSpec(type="MLPNet", precision=given)).precision
            == given
        )
