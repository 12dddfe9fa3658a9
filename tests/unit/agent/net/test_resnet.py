"""IMPALA's residual network against the modules of torch.nn."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.spec.schema.conv import ResNetSpec
from tests.support import ppo, q_learning
from tests.unit.agent.net.building import (
    TwoHeads,
    assert_same_function,
    build,
    copy_parameters,
    images,
)
from tests.unit.spec.problems import assert_problem

SHAPE = (4, 21, 18)


class Residual(nn.Module):
    """What a block of these layers adds to its input."""

    def __init__(self, *layers) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def block(width, activation):
    return Residual(
        *activation(width),
        nn.Conv2d(width, width, 3, padding=1),
        *activation(width),
        nn.Conv2d(width, width, 3, padding=1),
    )


def stage(in_width, width, activation, num_blocks=2):
    return [
        nn.Conv2d(in_width, width, 3, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        *(block(width, activation) for _ in range(num_blocks)),
    ]


def whole(activation, vector_activation, channels=(16, 32, 32), num_blocks=2):
    """The network of the paper, without the heads."""
    widths = [SHAPE[0], *channels]
    height, width = SHAPE[1:]
    layers = []
    for before, after in pairwise(widths):
        layers += stage(before, after, activation, num_blocks)
        height = (height + 1) // 2
        width = (width + 1) // 2
    return nn.Sequential(
        *layers,
        *activation(channels[-1]),
        nn.Flatten(),
        nn.Linear(channels[-1] * height * width, 256),
        *vector_activation(256),
    )


def relu(_):
    return [nn.ReLU()]


def normalised(width):
    return [nn.BatchNorm2d(width), nn.GroupNorm(1, width), nn.Tanh()]


def normalised_vector(width):
    return [nn.BatchNorm1d(width), nn.LayerNorm(width), nn.Tanh()]


def renormalised(width):
    return [nn.ReLU(), nn.GroupNorm(1, width)]


def renormalised_vector(width):
    return [nn.ReLU(), nn.LayerNorm(width)]


NETS = {
    "of the paper": ({}, (relu, relu)),
    "other stages": ({"channels": [5], "num_blocks": 3}, (relu, relu)),
    "norms before": (
        {"batch_norm": True, "layer_norm": True, "hid_layers_activation": "tanh"},
        (normalised, normalised_vector),
    ),
    "norms after": (
        {"layer_norm": True, "norm_place": "after"},
        (renormalised, renormalised_vector),
    ),
}


def in_order(net):
    """The layers with parameters, in the order in which they compute."""
    for part in net.body.stages:
        yield part.conv
        for residual in part.blocks:
            inner, outer = residual.convs
            yield from (residual.first, inner, residual.second, outer)
    yield net.body.last
    yield from (*net.tail.hidden, *net.tail.norms)
    yield from net.tail.heads


@pytest.mark.parametrize(("keys", "activations"), NETS.values(), ids=NETS)
def test_outputs_and_gradients_are_those_of_the_layers_of_torch(keys, activations):
    net = nn.Module.train(build("ResNet", SHAPE, normalize=True, **keys))
    shape_keys = {k: keys[k] for k in ("channels", "num_blocks") if k in keys}
    twin = TwoHeads(whole(*activations, **shape_keys), 256)
    ordered = nn.ModuleList(in_order(net))
    copy_parameters(ordered, twin)
    obs = images(SHAPE).double()
    net.double()
    ordered.forward = net.forward
    assert_same_function(ordered, twin.double(), obs, obs / 255)


def test_bytes_are_taken_as_the_floats_they_are():
    obs = images(SHAPE)
    before = obs.clone()
    for normalize in (True, False):
        net = build("ResNet", SHAPE, normalize=normalize)
        assert_close(net(obs), net(obs.float()), rtol=0, atol=0)
    scaled = build("ResNet", SHAPE, normalize=True)(obs)
    plain = build("ResNet", SHAPE)(obs.float() / 255)
    assert_close(scaled, plain)
    assert torch.equal(obs, before)


@pytest.mark.parametrize("sides", [(2, 2), (5, 4), (84, 84)])
def test_images_of_any_size_have_features(sides):
    net = build("ResNet", (1, *sides))
    (policy, _) = net(images((1, *sides), size=2))
    assert policy.shape == (2, 3)
    height, width = (-(-side // 8) for side in sides)
    assert net.body.width == 32 * height * width


def test_the_weights_between_hidden_layers_are_counted():
    keys = {"channels": [3, 5], "num_blocks": 2, "fc_hid_layers": [8, 6]}
    net = build("ResNet", SHAPE, **keys)
    blocks = [conv for part in net.body.stages for b in part.blocks for conv in b.convs]
    between = [*blocks, net.body.stages[1].conv, net.tail.hidden[1]]
    expected = sum(layer.weight.numel() for layer in between)
    assert ResNetSpec(type="ResNet", **keys).hidden_weights() == expected


RESNET = {"type": "ResNet", "update_frequency": 64}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (ppo(agent__net={"type": "ResNet", "shared": True}), None),
        (q_learning("IQN", agent__net=RESNET), None),
        (q_learning("DQN", agent__net={**RESNET, "channels": []}), "agent.net.ch…"),
        (q_learning("DQN", agent__net={**RESNET, "num_blocks": 0}), "agent.net.num…"),
        (
            q_learning("DQN", agent__net={**RESNET, "conv_hid_layers": [[4, 3]]}),
            "agent.net.conv_hid_layers = …: unknown key; …",
        ),
    ],
)
def test_its_keys_are_checked(raw, problem):
    assert_problem(raw, problem)
