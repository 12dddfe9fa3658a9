"""SimBa: its layers, their first values, and what a spec may ask of it."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm
from torch.testing import assert_close

from slm_lab.agent.net.body import BodyNet
from slm_lab.agent.net.layers import Head
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.simba import SimBaBody
from slm_lab.spec.schema.simba import SimBaNetSpec
from tests.support import ppo, q_learning, randn, seeded, soft
from tests.unit.agent.net.building import build
from tests.unit.spec.problems import assert_problem


def perturbed(net):
    """The net with other biases and norms than those it begins with."""
    generator = seeded(3)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return net


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_its_outputs_are_those_of_the_paper_written_out(activation):
    keys = {"width": 6, "num_blocks": 2, "hid_layers_activation": activation}
    net = perturbed(build("SimBaNet", (4,), **keys))
    values = dict(net.named_parameters())
    phi = {"relu": torch.relu, "tanh": torch.tanh}[activation]

    def linear(name, x):
        return x @ values[f"{name}.weight"].T + values[f"{name}.bias"]

    def norm(name, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        scaled = centred / (variance + 1e-6).sqrt()
        return scaled * values[f"{name}.weight"] + values[f"{name}.bias"]

    obs = randn(5, 4)
    x = linear("body.embedding", obs)
    for number in (0, 1):
        block = f"body.blocks.{number}"
        hidden = phi(linear(f"{block}.expand", norm(f"{block}.norm", x)))
        x = x + linear(f"{block}.contract", hidden)
    features = norm("body.norm", x)
    expected = [linear(f"tail.heads.{head}", features) for head in (0, 1)]
    assert_close(list(net(obs)), expected)


def test_a_net_made_by_hand_equals_that_of_a_spec():
    generator = seeded(0)
    body = SimBaBody((4,), 6, 2, generator, expansion=3)
    tail = MLPNet((6,), (), [Head(3), Head(1)], generator, init_fn="orthogonal_")
    of_spec = build("SimBaNet", (4,), width=6, num_blocks=2, expansion=3)
    obs = randn(5, 4)
    assert_close(BodyNet(body, tail)(obs), of_spec(obs), rtol=0, atol=0)


@pytest.mark.parametrize(("width", "num_blocks", "expansion"), [(8, 1, 4), (6, 3, 2)])
def test_the_number_of_its_parameters_is_that_of_its_layers(
    width, num_blocks, expansion
):
    keys = {"width": width, "num_blocks": num_blocks, "expansion": expansion}
    net = build("SimBaNet", (5,), heads=(3, 1), **keys)
    hidden = expansion * width
    norm = 2 * width
    block = norm + (width + 1) * hidden + (hidden + 1) * width
    expected = (5 + 1) * width + num_blocks * block + norm + (width + 1) * (3 + 1)
    assert sum(parameter.numel() for parameter in net.parameters()) == expected
    weights = SimBaNetSpec(type="SimBaNet", **keys).hidden_weights()
    assert weights == num_blocks * 2 * width * hidden


def test_it_begins_as_its_authors_begin_it():
    """Orthogonal embedding and heads of gain 1, He's variance 2 / fan-in in blocks, no
    bias."""
    net = build("SimBaNet", (64,), heads=(16,), width=64, num_blocks=2)
    square = net.body.embedding.weight
    assert_close(square @ square.T, torch.eye(64), rtol=0, atol=1e-5)
    (head,) = net.tail.heads
    assert_close(head.weight @ head.weight.T, torch.eye(16), rtol=0, atol=1e-5)
    for block in net.body.blocks:
        for layer in (block.expand, block.contract):
            deviation = layer.weight.std().item()
            assert deviation == pytest.approx(
                math.sqrt(2 / layer.in_features), rel=0.05
            )
            assert abs(layer.weight.mean().item()) < 0.005
    for module in net.modules():
        if isinstance(module, nn.Linear):
            assert not module.bias.any()


def test_a_gain_of_an_output_layer_is_that_of_the_spec():
    usual = build("SimBaNet", (5,), width=8)
    small = BodyNet(usual.body, MLPNet((8,), (), [Head(3, 0.01)], seeded(1)))
    (head,) = small.tail.heads
    assert_close(head.weight @ head.weight.T, 1e-4 * torch.eye(3), rtol=1e-4, atol=1e-9)


def test_a_first_block_sees_only_the_direction_of_the_embedding():
    """Pre-normalisation: observations a thousand times as large change the block's
    part of the sum by nothing."""
    block = build("SimBaNet", (4,), width=8).body.blocks[0]
    x = randn(5, 8)
    part = block(x) - x
    large = block(1000 * x) - 1000 * x
    assert_close(large, part, rtol=1e-2, atol=1e-2)


def test_features_of_a_new_net_are_standardised():
    net = build("SimBaNet", (4,), width=8, num_blocks=3)
    features = net.body(100 * randn(16, 4))
    assert_close(features, layer_norm(features, (8,)), rtol=1e-3, atol=1e-4)


SIMBA = {"type": "SimBaNet", "width": 8, "update_frequency": 64}


def simba(make, name, **keys):
    return make(name, agent__net={**SIMBA, **keys})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (ppo(agent__net={"type": "SimBaNet", "shared": True}), None),
        (simba(q_learning, "IQN"), None),
        (simba(soft, "TD3", critic_width=16, critic_num_blocks=2), None),
        (
            soft("CrossQ", agent__net={"type": "SimBaNet"}),
            "agent.net.type = 'SimBaNet': CrossQ normalises its nets by batch, …",
        ),
        (simba(q_learning, "DQN", layer_norm=True), "agent.net.layer_norm = …: must …"),
        (simba(q_learning, "DQN", batch_norm=True), "agent.net.batch_norm = …: must …"),
        (simba(q_learning, "DQN", noisy=True), "agent.net.noisy = …: use MLPNet, …"),
        (
            simba(q_learning, "DQN", init_fn="orthogonal_"),
            "agent.net.init_fn = 'orthogonal_': must be null: the net has its own",
        ),
        (
            simba(q_learning, "DQN", hid_layers=[64]),
            "agent.net.hid_layers = …: unknown key; … num_blocks of SimBaNet, …",
        ),
        (simba(q_learning, "DQN", num_blocks=0), "agent.net.num_blocks = 0: …"),
    ],
)
def test_what_the_net_has_of_its_own_cannot_be_set(raw, problem):
    assert_problem(raw, problem)
