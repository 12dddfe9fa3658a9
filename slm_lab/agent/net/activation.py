"""Activations by the names that specs use: functions of torch, or module names without case."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


def activation_function(name: str | None) -> Activation | None:
    """The function behind a name such as "tanh", "relu", "leaky_relu", "SiLU"; None for None."""
    if name is None:
        return None
    direct: dict[str, Activation] = {
        "tanh": torch.tanh,
        "relu": torch.relu,
        "sigmoid": torch.sigmoid,
    }
    wanted = name.lower().replace("_", "")
    if wanted in direct:
        return direct[wanted]
    for attribute in dir(nn.modules.activation):
        if attribute.lower() == wanted:
            module: Activation = getattr(nn, attribute)()
            return module
    raise ValueError(f'torch has no activation "{name}"')
