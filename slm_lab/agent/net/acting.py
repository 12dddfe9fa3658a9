"""The forward pass of an actor: few observations, no gradient, arrays in and out."""

from abc import ABC, abstractmethod

import torch
from torch import nn

from slm_lab.core.types import Array, FloatArray


class ArrayNet(ABC):
    """A network that can do without torch where torch would only be in the way."""

    @abstractmethod
    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """`forward` of observations (N, *obs_shape) by NumPy; None where torch does better."""


def act_forward(net: nn.Module, obs: Array, device: torch.device) -> tuple[FloatArray, ...]:
    """What `net`, which lives on `device`, puts out for observations (N, *obs_shape)."""
    outputs = net.forward_array(obs) if isinstance(net, ArrayNet) else None
    if outputs is None:
        with torch.inference_mode():
            tensors = net.forward(torch.from_numpy(obs).to(device))
            outputs = tuple(tensor.cpu().numpy() for tensor in tensors)
    return outputs
