"""Initialisation with a given generator, so that no network depends on global randomness."""

import inspect
import math
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd as AnyConv
from typing_extensions import override

from slm_lab.agent.net.layers.batch_renorm import BatchRenorm
from slm_lab.spec.torch_table import activation_class

BatchNorm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d
Norm: TypeAlias = nn.LayerNorm | nn.GroupNorm | BatchNorm | BatchRenorm

Linear: TypeAlias = nn.Linear | AnyConv
"""A layer with a weight (out, in, …), and a bias where it has one."""


class EmptyLinear(nn.Linear):
    """A linear layer that is built without drawing from the global generator.

    torch's own way to that, by way of the meta device, imports sympy: half a second and 50 MiB.
    """

    @override
    def reset_parameters(self) -> None:
        """Leaves the memory as it is, to be filled by `init_linear`."""


class EmptyConv2d(nn.Conv2d):
    """A convolution of images that is built without drawing from the global generator."""

    @override
    def reset_parameters(self) -> None:
        """Leaves the memory as it is, to be filled by `init_linear`."""


def init_linear(
    layer: Linear, init_fn: str | None, gain: float, generator: torch.Generator
) -> None:
    """Fills one linear layer or convolution.

    `init_fn` is a name in torch.nn.init, applied to the weight; the bias is then zero. Without a
    name, weight and bias are uniform in ±1/√fan_in, as torch does by default. `gain` scales the
    weight where the initialiser has a gain.
    """
    with torch.no_grad():
        if init_fn is None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is not None:
                layer.bias.uniform_(-bound, bound, generator=generator)
            return
        apply_initialiser(layer.weight, init_fn, gain, generator)
        if layer.bias is not None:
            layer.bias.zero_()


def apply_initialiser(
    weight: Tensor, init_fn: str, gain: float, generator: torch.Generator
) -> None:
    """Calls torch.nn.init.`init_fn`, with gain and generator where it takes them."""
    initialiser = getattr(nn.init, init_fn)
    accepted = inspect.signature(initialiser).parameters
    offered = {"gain": gain, "generator": generator}
    initialiser(weight, **{k: v for k, v in offered.items() if k in accepted})


def init_recurrent(cell: nn.RNNBase, init_fn: str | None, generator: torch.Generator) -> None:
    """Fills recurrent layers, the matrix of every gate by itself.

    With a name in torch.nn.init the biases are zero; without, all is uniform in ±1/√width, as torch
    does by default.
    """
    bound = 1 / math.sqrt(cell.hidden_size)
    with torch.no_grad():
        for parameter in cell.parameters():
            if init_fn is None:
                parameter.uniform_(-bound, bound, generator=generator)
            elif parameter.dim() == 1:
                parameter.zero_()
            else:
                for gate in torch.split(parameter, cell.hidden_size):
                    apply_initialiser(gate, init_fn, 1.0, generator)


def init_norm(layer: Norm) -> None:
    """The identity: weight one, bias zero, running statistics of the unit normal."""
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()


def hidden_gain(activation: str | None) -> float:
    """The gain that keeps the variance through `activation` (He et al., arXiv:1502.01852).

    For tanh √2, as is customary in this field; 5/3 drives deep stacks into saturation.
    """
    known = {"ReLU": math.sqrt(2), "LeakyReLU": math.sqrt(2), "Tanh": math.sqrt(2), "SELU": 3 / 4}
    return 1.0 if activation is None else known.get(activation_class(activation) or "", 1.0)
