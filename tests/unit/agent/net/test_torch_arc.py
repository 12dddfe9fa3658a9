"""A body of torch.nn layers, as a spec writes it."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.testing import assert_close

from slm_lab.agent.fast.networks import array_net
from slm_lab.agent.from_spec.net import arc_problems
from slm_lab.agent.net.layers import BatchRenorm
from slm_lab.core.errors import LabError
from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.spec.schema.torch_layers import layers as layers_of_torch
from tests.support import parse, ppo, randn, soft
from tests.unit.agent.net.building import (
    TwoHeads,
    arc,
    assert_same_function,
    build,
    copy_parameters,
    images,
)

VECTOR = (4,)
IMAGE = (2, 12, 12)
LAYERS = layers_of_torch()
REFUSED = sorted(name for name in LAYERS if LAYERS[name].refused)


def arc_net(*layers, shape=VECTOR, **keys):
    return build("TorchArcNet", shape, arc=arc(*layers), **keys)


def linear(width):
    return ("LazyLinear", {"out_features": width})


def observations(size=8, seed=5):
    return randn(size, *VECTOR, seed=seed)


@pytest.mark.parametrize("init_fn", [None, "orthogonal_"])
def test_an_arc_of_hidden_layers_is_the_perceptron_of_the_same_layers(init_fn):
    """Bit for bit, from the first weight on, by gradient and to act on."""
    net = arc_net(linear(8), "Tanh", linear(6), "Tanh", init_fn=init_fn)
    keys = {"hid_layers": [8, 6], "hid_layers_activation": "tanh", "init_fn": init_fn}
    twin = build("MLPNet", VECTOR, **keys)
    obs = observations()
    assert_close(net(obs), twin(obs), rtol=0, atol=0)
    acted, expected = (array_net(each).forward(obs.numpy()) for each in (net, twin))
    assert all(
        (left == right).all() for left, right in zip(acted, expected, strict=True)
    )


def test_an_arc_of_convolutions_is_the_net_of_the_same_convolutions():
    layers = [
        ("LazyConv2d", {"out_channels": 4, "kernel_size": 4, "stride": 2}),
        "ReLU",
        ("LazyConv2d", {"out_channels": 6, "kernel_size": [3, 3]}),
        "ReLU",
        "Flatten",
        linear(7),
        "ReLU",
    ]
    net = arc_net(*layers, shape=IMAGE, init_fn="orthogonal_", normalize=True)
    keys = {
        "init_fn": "orthogonal_",
        "normalize": True,
        "hid_layers_activation": "relu",
    }
    rows = [[4, 4, 2], [6, 3]]
    twin = build("ConvNet", IMAGE, conv_hid_layers=rows, fc_hid_layers=[7], **keys)
    obs = images(IMAGE)
    assert_close(net(obs), twin(obs))


MIXED = [
    (
        [
            linear(8),
            ("LayerNorm", {"normalized_shape": [8]}),
            "SiLU",
            linear(5),
            "SELU",
        ],
        lambda: [
            nn.Linear(4, 8),
            nn.LayerNorm(8),
            nn.SiLU(),
            nn.Linear(8, 5),
            nn.SELU(),
        ],
    ),
    (
        [
            ("LazyLinear", {"out_features": 8, "bias": False}),
            "LazyBatchNorm1d",
            "Tanh",
            linear(6),
            "ReLU",
            linear(5),
            "ReLU",
        ],
        lambda: [
            nn.Linear(4, 8, bias=False),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Linear(8, 6),
            nn.ReLU(),
            nn.Linear(6, 5),
            nn.ReLU(),
        ],
    ),
    (
        [
            ("Linear", {"in_features": 4, "out_features": 5}),
            ("LeakyReLU", {"negative_slope": 0.3}),
            ("LazyBatchRenorm1d", {"warmup_steps": 2, "momentum": 0.1, "eps": 0.01}),
        ],
        lambda: [nn.Linear(4, 5), nn.LeakyReLU(0.3), BatchRenorm(5, 0.01, 0.1, 2)],
    ),
]


@pytest.mark.parametrize(("layers", "plain"), MIXED)
def test_any_layers_do_what_they_do_in_torch(layers, plain):
    net = arc_net(*layers)
    obs = observations()
    twin = TwoHeads(nn.Sequential(*plain()), 5)
    copy_parameters(net, twin)
    net.train(True)
    assert_same_function(net, twin, obs, obs)


def test_gains_are_those_of_the_activations_that_follow():
    net = arc_net(
        linear(4),
        ("LayerNorm", {"normalized_shape": [4]}),
        "ReLU",
        linear(4),
        linear(4),
        "SELU",
        init_fn="orthogonal_",
    )
    weights = [m.weight for m in net.body.children() if isinstance(m, nn.Linear)]
    gains = [torch.linalg.matrix_norm(w, 2).item() for w in weights]
    assert gains == pytest.approx([2**0.5, 1.0, 0.75], abs=1e-5)


def test_images_are_divided_by_255_and_vectors_are_not():
    obs = images(IMAGE)
    flat = ["Flatten", linear(5), "Tanh"]
    scaled = arc_net(*flat, shape=IMAGE, normalize=True)(obs)
    plain = arc_net(*flat, shape=IMAGE)(obs.float() / 255)
    assert_close(scaled, plain)
    stacks = images((3, *IMAGE))
    shape = (3, *IMAGE)
    scaled = arc_net(*flat, shape=shape, normalize=True)(stacks)
    plain = arc_net(*flat, shape=shape)(stacks.float() / 255)
    assert_close(scaled, plain)
    vectors = observations()
    both = [arc_net(linear(5), "SiLU", normalize=n)(vectors) for n in (True, False)]
    assert all(torch.equal(left, right) for left, right in zip(*both, strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_a_module_that_cannot_be_a_layer_of_a_body_is_refused_by_name(name):
    with pytest.raises(
        ValidationError, match=f"Sequential.1.{name}\n.*cannot be a layer here: it"
    ):
        arc_net(linear(4), name)


def test_every_layer_that_begins_by_chance_is_refused_or_filled_by_the_generator():
    """The others begin at ones and zeros: a layer new in torch has to be looked at
    first."""
    certain = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU)
    allowed = [
        getattr(nn, name) for name in LAYERS.keys() - {*REFUSED, "LazyBatchRenorm1d"}
    ]
    by_chance = [
        cls
        for cls in allowed
        if hasattr(cls, "reset_parameters")
        and not issubclass(cls, (nn.Linear, _ConvNd, *certain))
    ]
    assert by_chance == []
    assert len(allowed) > 80


CONV = ("LazyConv2d", {"out_channels": 4, "kernel_size": 3})


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            [CONV, linear(5), "ReLU"],
            r"Sequential.1: .* arrives there is \(4, 10, 10\); put {Flatten",
        ),
        (
            [CONV, "ELU"],
            r"Sequential.2: .* arrives there is \(4, 10, 10\); put {Flatten: null}",
        ),
        (
            [CONV, ("LazyConv2d", {"out_channels": 4, "kernel_size": 13})],
            r"Sequential.1.LazyConv2d: .* the shape \(4, 10, 10\) that arrives there: "
            r".*13 x 13",
        ),
        (
            ["Flatten", ("Linear", {"in_features": 7, "out_features": 3}), "Tanh"],
            r"Sequential.1.Linear: .* the shape \(288,\) that arrives there",
        ),
        (
            [("MaxPool2d", {"kernel_size": 2, "return_indices": True}), "Flatten"],
            r"Sequential.0.MaxPool2d: must give one output for each observation",
        ),
        (
            ["Flatten", linear(5), ("Softmax", {"dim": -2})],
            r"Sequential.2.Softmax: must give one output for each .*, "
            r"\(2, 5\) arrives there",
        ),
        (
            [("Flatten", {"start_dim": -4})],
            r"Sequential.0.Flatten: must give one output for each",
        ),
    ],
)
def test_layers_that_do_not_fit_are_refused_with_the_place_and_the_shape(
    layers, message
):
    with pytest.raises(LabError, match=message):
        arc_net(*layers, shape=IMAGE)


@pytest.mark.parametrize(
    ("layer", "args", "key"),
    [("Softmax", {"dim": 0}, "dim"), ("Flatten", {"start_dim": 0}, "start_dim")],
)
def test_an_axis_that_counts_the_observations_is_refused(layer, args, key):
    with pytest.raises(
        ValidationError, match=rf"{layer}.{key}\s+must not be 0: this is the batch axis"
    ):
        arc_net(linear(5), (layer, args), "Flatten")
    arc_net(linear(5), (layer, {key: 1}))


@pytest.mark.parametrize("key", ["batch_norm", "layer_norm"])
def test_layers_that_an_arc_names_itself_are_not_added_from_outside(key):
    assert arc_net(linear(5), "Tanh", **{key: False})
    with pytest.raises(
        ValidationError, match="must be false: add the layer to the arc"
    ):
        arc_net(linear(5), "Tanh", **{key: True})


LINEAR = ("LazyLinear", {"out_features": 8})
OF_FIVE = ("Linear", {"in_features": 5, "out_features": 8})
"""A layer that only takes five numbers."""


def arc_spec(*layers, **keys):
    optim = {"name": "GlobalAdam", "lr": 1e-3}
    return {"type": "TorchArcNet", "arc": arc(*layers), "optim_spec": optim, **keys}


def seen(shape):
    """Observations without parts."""
    return ObservationLayout(shape, FLOAT32)


def problems(spec, shape, *, discrete=True):
    return [
        (each.path, each.message)
        for each in arc_problems(parse(spec).agent, seen(shape), discrete)
    ]


def test_an_arc_that_fits_has_no_problems():
    assert problems(ppo(agent__net=arc_spec(OF_FIVE, "ReLU")), (5,)) == []
    assert problems(ppo(), (4,)) == []


def test_each_role_is_tried_with_the_arc_that_it_has():
    own = {"critic_arc": arc(OF_FIVE)}
    ((path, _),) = problems(ppo(agent__net=arc_spec(LINEAR, shared=False, **own)), (4,))
    assert path == "agent.net.critic_arc.modules.body.Sequential.0.Linear"
    spec = ppo(
        agent__net=arc_spec(LINEAR, shared=False), agent__critic_net=arc_spec(OF_FIVE)
    )
    ((path, _),) = problems(spec, (4,))
    assert path == "agent.critic_net.arc.modules.body.Sequential.0.Linear"


@pytest.mark.parametrize("discrete", [True, False])
def test_critics_that_see_a_continuous_action_too_are_tried_when_they_are_built(
    discrete,
):
    """Here is not known how many numbers the action has: it would be five in all."""
    spec = soft(
        "SoftActorCritic",
        agent__net=arc_spec(LINEAR),
        agent__critic_net=arc_spec(OF_FIVE),
    )
    found = problems(spec, (4,), discrete=discrete)
    assert [path.split(".")[1] for path, _ in found] == (
        ["critic_net"] if discrete else []
    )
