"""Convolutional nets against the usual modules of torch.nn."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.agent.net.dueling import dueling_q
from slm_lab.agent.net.layers import BatchRenorm
from slm_lab.agent.net.q_network import normalise_spectrum
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.layers import ConvLayer
from tests.support import randn
from tests.unit.agent.net.building import (
    TwoHeads,
    assert_same_function,
    build,
    copy_parameters,
    images,
)

SHAPE = (3, 14, 12)
KEYS = {
    "conv_hid_layers": [[4, 5, 2], [6, 3, 1, 1]],
    "fc_hid_layers": [7],
    "normalize": True,
}


def conv_net(kind="ConvNet", shape=SHAPE, heads=(3, 1), **keys):
    return build(kind, shape, heads, **{**KEYS, **keys})


PLAIN = [
    (
        {},
        lambda: [
            nn.Conv2d(3, 4, 5, 2),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, 1, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * 5 * 4, 7),
            nn.ReLU(),
        ],
        7,
    ),
    (
        {
            "conv_hid_layers": [[4, [5, 3], [2, 1], [1, 2], [1, 3]], [5, 2, 2, 0, 4]],
            "fc_hid_layers": [],
            "hid_layers_activation": "tanh",
        },
        lambda: [
            nn.Conv2d(3, 4, (5, 3), (2, 1), (1, 2), (1, 3)),
            nn.Tanh(),
            nn.Conv2d(4, 5, 2, 2, 0, 4),
            nn.Tanh(),
            nn.Flatten(),
        ],
        5 * 1 * 3,
    ),
    (
        {"batch_norm": True, "layer_norm": True, "hid_layers_activation": "silu"},
        lambda: [
            nn.Conv2d(3, 4, 5, 2),
            nn.BatchNorm2d(4),
            nn.GroupNorm(1, 4),
            nn.SiLU(),
            nn.Conv2d(4, 6, 3, 1, 1),
            nn.BatchNorm2d(6),
            nn.GroupNorm(1, 6),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(120, 7),
            nn.BatchNorm1d(7),
            nn.LayerNorm(7),
            nn.SiLU(),
        ],
        7,
    ),
    (
        {"conv_hid_layers": [[4, 14]], "hid_layers_activation": "softmax"},
        lambda: [
            nn.Conv2d(3, 4, 14),
            nn.Softmax(1),
            nn.Flatten(),
            nn.Linear(4, 7),
            nn.Softmax(1),
        ],
        7,
    ),
]


def named_in_order(net):
    """Parameters in the order in which the layers of a plain net have them."""
    for layers, norms in (
        (net.body.convs, net.body.norms),
        (net.tail.hidden, net.tail.norms),
    ):
        per_layer = len(norms) // max(len(layers), 1)
        for index, layer in enumerate(layers):
            yield layer
            yield from norms[index * per_layer : (index + 1) * per_layer]
    yield from net.tail.heads


@pytest.mark.parametrize(("keys", "layers", "width"), PLAIN)
def test_outputs_and_gradients_are_those_of_the_layers_of_torch(keys, layers, width):
    """The twin works in torch's own memory format, so the format changes nothing
    either."""
    shape = SHAPE
    if keys.get("conv_hid_layers") == [[4, 14]]:
        shape = (3, 14, 14)
    net = nn.Module.train(conv_net(shape=shape, **keys))
    twin = TwoHeads(nn.Sequential(*layers()), width)
    ordered = nn.ModuleList(named_in_order(net))
    copy_parameters(ordered, twin)
    obs = images(shape)
    ordered.forward = net.forward
    assert_same_function(ordered, twin, obs, obs.float() / 255)


def test_bytes_are_taken_as_the_floats_they_are():
    obs = images(SHAPE)
    before = obs.clone()
    for normalize in (True, False):
        net = conv_net(normalize=normalize)
        assert_close(net(obs), net(obs.float()), rtol=0, atol=0)
    scaled = conv_net()(obs)
    plain = conv_net(normalize=False)(obs.float() / 255)
    assert_close(scaled, plain)
    assert torch.equal(obs, before)


def test_q_is_the_value_and_what_an_action_has_over_the_others():
    net = conv_net("DuelingConvNet", heads=[4])
    obs = images(SHAPE)
    (q,) = net(obs)
    value, advantage = net.streams(obs)
    assert q.shape == (8, 4)
    assert_close(q, dueling_q(value, advantage))
    assert_close(q.mean(-1, keepdim=True), value)
    assert_close(q.argmax(-1), advantage.argmax(-1))


@pytest.mark.parametrize(
    "row", [[8, 3], [8, [5, 2], 3, [1, 0], 2], [8, 1, 4], [8, 2, 5, 0, 7], [8, 4, 2, 1]]
)
def test_the_size_after_a_convolution_is_the_one_that_torch_makes(row):
    layer = ConvLayer.of(row)
    conv = nn.Conv2d(1, *layer)
    for size in [(height, 13 - height) for height in range(1, 13)]:
        try:
            made = tuple(conv(torch.zeros(1, 1, *size)).shape[-2:])
        except RuntimeError:  # too small
            made = None
        assert layer.size_after(size) == made


def test_two_outputs_of_a_dueling_net_are_refused():
    with pytest.raises(LabError, match="type = DuelingConvNet: has one output"):
        conv_net("DuelingConvNet")


def test_the_weights_of_convolutions_can_be_normalised_too():
    """As matrices (out, in × kernel); the heads, which are linear layers, as they
    are."""
    net = conv_net()
    normalise_spectrum(net, torch.Generator().manual_seed(0))
    layers = [*net.body.convs, *net.tail.hidden, *net.tail.heads]
    for layer in layers:
        norm = torch.linalg.matrix_norm(layer.weight.flatten(1), 2)
        assert_close(norm, torch.ones(()), rtol=0.02, atol=0)
    flat = FlatParameters(net)
    sum(out.sum() for out in net(images(SHAPE))).backward()
    assert all(p.grad.abs().max() > 0 for p in flat.views)


@pytest.mark.parametrize("warmup_steps", [0, 10])
def test_the_moments_of_a_channel_are_over_all_of_its_places(warmup_steps):
    image = randn(4, 3, 5, 6) * 3 + 1
    rows = image.permute(0, 2, 3, 1).reshape(-1, 3)
    of_images, of_rows = (BatchRenorm(3, warmup_steps=warmup_steps) for _ in range(2))
    for _ in range(2):
        expected = of_rows(rows).view(4, 5, 6, 3).permute(0, 3, 1, 2)
        assert_close(of_images(image), expected)
    assert_close(of_images.running_var, of_rows.running_var)
