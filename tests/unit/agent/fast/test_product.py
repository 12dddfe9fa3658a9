"""Layers whose products NumPy computes against those of torch."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.fast.choose import compute_by_arrays
from slm_lab.agent.fast.product import WIDE
from slm_lab.agent.net.layers import EmptyLinear, init_linear
from tests.support import randn, seeded
from tests.unit.agent.net.building import build


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
        compute_by_arrays(layer)
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


def test_wide_blocks_multiply_by_numpy_as_by_torch(multiplied):
    keys = {"width": WIDE, "num_blocks": 1}
    by_torch = build("SimBaNet", (4,), **keys)
    by_numpy = build("SimBaNet", (4,), matmul="numpy", **keys)
    compute_by_arrays(by_numpy)
    obs = randn(WIDE, 4)
    assert_close(by_numpy(obs), by_torch(obs))
    assert multiplied


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("precision", "products"), [("float32", [(WIDE, WIDE, 2 * WIDE)]), ("bf16", [])]
)
def test_numpy_leaves_half_precision_to_torch(multiplied, precision, products, normed):
    net = build(
        "MLPNet",
        (4,),
        hid_layers=[WIDE, 2 * WIDE],
        hid_layers_activation="relu",
        layer_norm=normed,
        precision=precision,
        matmul="numpy",
    )
    compute_by_arrays(net)
    net(torch.zeros(WIDE, 4))
    assert multiplied == products
