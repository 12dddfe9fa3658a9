"""Activations by the names that specs use: "tanh", "relu", "leaky_relu", "SiLU"."""

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from slm_lab.spec.torch_table import activation_class

Activation = Callable[[Tensor], Tensor]

DIRECT: dict[str, Activation] = {
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "Sigmoid": torch.sigmoid,
}
"""Functions for the commonest: calling a module costs more than they do."""


def activation_function(name: str | None, dim: int = -1) -> Activation | None:
    """The function behind an activation of torch.nn; None for None.

    One that looks at several features together finds them in the dimension `dim`.
    """
    if name is None:
        return None
    known = activation_class(name)
    if known is None:
        raise ValueError(f'torch has no activation "{name}"')
    if known in DIRECT:
        return DIRECT[known]
    cls: type[nn.Module] = getattr(nn, known)
    if "dim" in inspect.signature(cls).parameters:
        return cls(dim=dim)
    return cls()
