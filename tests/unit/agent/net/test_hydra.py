"""A perceptron whose outputs have separate hidden layers."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from tests.support import randn
from tests.unit.agent.net.building import (
    assert_same_function,
    build,
    copy_parameters,
)

TANH = {"hid_layers_activation": "tanh"}


def hydra(hid_layers, heads=(3, 1), **keys):
    return build("HydraMLPNet", (4,), heads, hid_layers=hid_layers, **{**TANH, **keys})


class Plain(nn.Module):
    """A trunk, and a stack of layers for each output."""

    def __init__(self, trunk: list[nn.Module], tails: list[list[nn.Module]]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*trunk)
        self.tails = nn.ModuleList([nn.Sequential(*tail) for tail in tails])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.trunk(x)
        return tuple(tail(features) for tail in self.tails)


CASES = [
    (
        [[8], [6], [5]],
        lambda: Plain(
            [nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh()],
            [[nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, dim)] for dim in (3, 1)],
        ),
    ),
    (
        [[[8]], [], [[], [5, 7]]],
        lambda: Plain(
            [nn.Linear(4, 8), nn.Tanh()],
            [
                [nn.Linear(8, 3)],
                [
                    nn.Linear(8, 5),
                    nn.Tanh(),
                    nn.Linear(5, 7),
                    nn.Tanh(),
                    nn.Linear(7, 1),
                ],
            ],
        ),
    ),
    (
        [[], [], [[6]]],
        lambda: Plain(
            [], [[nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, dim)] for dim in (3, 1)]
        ),
    ),
]


@pytest.mark.parametrize(("hid_layers", "plain"), CASES)
def test_outputs_and_gradients_are_those_of_the_layers_of_torch(hid_layers, plain):
    net = hydra(hid_layers)
    twin = plain()
    copy_parameters(net, twin)
    obs = randn(8, 4, seed=1)
    assert_same_function(net, twin, obs, obs)


def test_with_one_output_it_is_a_perceptron():
    obs = randn(8, 4, seed=1)
    twin = build("MLPNet", (4,), [3], hid_layers=[8, 6, 5], **TANH)
    (left,) = hydra([[8], [6], [5]], [3])(obs)
    (right,) = twin(obs)
    torch.testing.assert_close(left, right)


def test_each_output_has_its_own_activation():
    obs = 100 * randn(64, 4, seed=1)
    first, second = hydra([[8], [], []], out_layer_activation=["sigmoid", None])(obs)
    assert 0 <= first.min() < first.max() <= 1
    assert second.min() < 0


@pytest.mark.parametrize(
    ("hid_layers", "message"),
    [
        ([[[8], [8]], [6], [5]], "has several heads, and an agent has one observation"),
        ([[8], [[6], [6]], [5]], "must be three lists of units per layer"),
        ([[8], [6]], "must be three lists of units per layer"),
        ([[8], [0], [5]], "must be three lists of units per layer"),
        ([8, [6], [5]], "must be three lists of units per layer"),
    ],
)
def test_invalid_tails_are_refused(hid_layers, message):
    with pytest.raises(ValidationError, match=message):
        hydra(hid_layers)
