"""Nets that are a body with heads on it, and their bodies alone."""

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_body
from slm_lab.core.errors import LabError
from slm_lab.core.registry import NETS
from tests.support import randn, seeded
from tests.unit.agent.net.building import arc, build, images

CONV = {"conv_hid_layers": [[4, 3, 2]], "fc_hid_layers": [7], "normalize": True}
PERCEPTRON = arc(("LazyLinear", {"out_features": 7}), "ReLU")
BODIES = {
    "perceptron": ("MLPNet", (4,), {"hid_layers": [8, 7]}),
    "no layers": ("MLPNet", (7,), {"hid_layers": []}),
    "convolutions": ("ConvNet", (2, 9, 8), CONV),
    "in bf16": ("ConvNet", (2, 9, 8), {**CONV, "precision": "bf16"}),
    "residual": ("SimBaNet", (4,), {"width": 7}),
    "arc": ("TorchArcNet", (4,), {"arc": PERCEPTRON}),
}


def body_of(kind, obs_shape, keys):
    spec = NETS.get(kind).params.model_validate({"type": kind, **keys})
    return build_body(spec, obs_shape, seeded(0))


@pytest.mark.parametrize("case", BODIES.values(), ids=BODIES)
def test_a_body_has_the_features_that_the_heads_of_its_net_see(case):
    kind, obs_shape, keys = case
    body = body_of(*case)
    obs = images(obs_shape) if len(obs_shape) == 3 else randn(8, *obs_shape)
    features = body(obs)
    assert features.shape == (8, body.width) == (8, 7)
    assert features.dtype == torch.float32
    net = build(kind, obs_shape, **keys)
    heads = net.heads if kind == "MLPNet" else net.tail.heads
    assert_close([head(features) for head in heads], list(net(obs)), rtol=0, atol=0)


def test_a_net_without_one_stack_of_layers_has_no_body():
    with pytest.raises(LabError, match="type = HydraMLPNet: has no body of its own"):
        body_of("HydraMLPNet", (4,), {"hid_layers": [[4], [4], [4]]})
