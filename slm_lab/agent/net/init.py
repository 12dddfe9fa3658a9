"""Initialisation with a given generator, so that no network depends on global randomness."""

import inspect
import math

import torch
from torch import Tensor, nn

from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.spec.torch_table import activation_class

Norm = nn.LayerNorm | nn.BatchNorm1d | BatchRenorm1d


class EmptyLinear(nn.Linear):
    """A linear layer that is built without drawing from the global generator.

    torch's own way to that, by way of the meta device, imports sympy: half a second and 50 MiB.
    """

    def reset_parameters(self) -> None:
        """Leaves the memory as it is, to be filled by `init_linear`."""


def init_linear(
    layer: nn.Linear, init_fn: str | None, gain: float, generator: torch.Generator
) -> None:
    """Fills one linear layer.

    `init_fn` is a name in torch.nn.init, applied to the weight; the bias is then zero. Without a
    name, weight and bias are uniform in ±1/√fan_in, as torch does by default. `gain` scales the
    weight where the initialiser has a gain.
    """
    with torch.no_grad():
        if init_fn is None:
            bound = 1 / math.sqrt(layer.in_features)
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
            return
        apply_initialiser(layer.weight, init_fn, gain, generator)
        layer.bias.zero_()


def apply_initialiser(
    weight: Tensor, init_fn: str, gain: float, generator: torch.Generator
) -> None:
    """Calls torch.nn.init.`init_fn`, with gain and generator where it takes them."""
    initialiser = getattr(nn.init, init_fn)
    accepted = inspect.signature(initialiser).parameters
    offered = {"gain": gain, "generator": generator}
    initialiser(weight, **{k: v for k, v in offered.items() if k in accepted})


def init_norm(layer: Norm) -> None:
    """The identity: weight one, bias zero, running statistics of the unit normal."""
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
        if isinstance(layer, nn.BatchNorm1d):
            layer.reset_running_stats()


def hidden_gain(activation: str | None) -> float:
    """The gain that keeps the variance through `activation` (He et al., arXiv:1502.01852).

    For tanh √2, as is customary in this field; 5/3 drives deep stacks into saturation.
    """
    known = {"ReLU": math.sqrt(2), "LeakyReLU": math.sqrt(2), "Tanh": math.sqrt(2), "SELU": 3 / 4}
    return 1.0 if activation is None else known.get(activation_class(activation) or "", 1.0)
