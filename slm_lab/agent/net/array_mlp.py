"""Multilayer perceptrons of arrays, to act and to learn without autograd."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from slm_lab.agent.autodiff import Differentiable, Node
from slm_lab.agent.device import host_arrays, moved
from slm_lab.agent.net.array_layers import ArrayLayer, Kernel
from slm_lab.core.types import Array, FloatArray, Shape


class ArrayNet:
    """A network that may be able to run on arrays."""

    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """`forward` of observations (N, *obs_shape); None where only torch can compute
        it."""
        return None

    def forward_nodes(self, obs: Array | Node) -> tuple[Node, ...] | None:
        """`forward` of observations (B, *obs_shape) for a loss of nodes; None where
        only autograd can differentiate it. Parameters without `requires_grad` get no
        gradient."""
        return None


def act_forward(
    net: nn.Module, obs: Array, device: torch.device
) -> tuple[FloatArray, ...]:
    """The outputs of `net`, which is on `device`, for observations (N, *obs_shape)."""
    outputs = net.forward_array(obs) if isinstance(net, ArrayNet) else None
    if outputs is None:
        with torch.inference_mode():
            outputs = host_arrays(net.forward(moved(torch.from_numpy(obs), device)))
    return outputs


def has_nodes(net: nn.Module, obs_shape: Shape) -> bool:
    """Whether `net` can be differentiated without autograd."""
    one = np.zeros((1, *obs_shape), np.float32)
    return isinstance(net, ArrayNet) and net.forward_nodes(one) is not None


def forward_nodes(net: nn.Module, obs: Differentiable) -> tuple[Node, ...]:
    """The outputs of a net that has nodes, for observations (B, *obs_shape)."""
    assert isinstance(net, ArrayNet)
    nodes = net.forward_nodes(obs if isinstance(obs, Node) else obs.numpy())
    assert nodes is not None
    return nodes


@final
class ArrayMLP:
    """A multilayer perceptron in the memory of the given layers, wherever that is at
    the moment. The first `num_hidden` are hidden layers, the others heads; `kinds` are
    those of all."""

    def __init__(
        self,
        kernel: Kernel,
        num_hidden: int,
        layers: Sequence[nn.Linear],
        kinds: Sequence[type[ArrayLayer]],
    ) -> None:
        self._kernel = kernel
        self._num_hidden = num_hidden
        self._linear = list(zip(kinds, layers, strict=True))
        self._first: Tensor = layers[0].weight
        self._where = 0
        self._hidden: list[ArrayLayer] = []
        self._heads: list[ArrayLayer] = []

    def forward(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """(N, D) to one (N, head_dim) per head; None away from the CPU."""
        if not self._look_up():
            return None
        x = self._floats(obs)
        for layer in self._hidden:
            x, _ = layer.forward(x)
            self._kernel.apply(x)
        return tuple(head.forward(x)[0] for head in self._heads)

    def forward_nodes(self, obs: Array | Node) -> tuple[Node, ...] | None:
        """(B, D) to one node (B, head_dim) per head; None away from the CPU."""
        if not self._look_up():
            return None
        parents = (obs,) if isinstance(obs, Node) else ()
        x = self._floats(obs.array if isinstance(obs, Node) else obs)
        learns = self._first.requires_grad
        steps: list[tuple[ArrayLayer, Any, FloatArray]] = []
        for layer in self._hidden:
            x, saved = layer.forward(x)
            self._kernel.apply(x)
            steps.append((layer, saved, x))

        def vjp(grad: FloatArray) -> tuple[FloatArray, ...]:
            for layer, saved, output in reversed(steps):
                self._kernel.backward(grad, output)
                passes_on = len(parents) > 0 or layer is not steps[0][0]
                grad = layer.backward(saved, grad, learns, passes_on)
            return (grad,) if parents else ()

        body = Node(x, parents, vjp)
        return tuple(_head(body, head, learns) for head in self._heads)

    def _floats(self, obs: Array) -> FloatArray:
        return np.ascontiguousarray(obs, self._heads[0].weight.dtype)

    def _look_up(self) -> bool:
        """Whether the parameters are on the CPU. Gets the arrays again after a flat
        vector has moved to other memory, with all parameters and gradients."""
        if not self._first.is_cpu:
            return False
        if self._first.data_ptr() != self._where:
            layers = [kind(layer.weight, layer.bias) for kind, layer in self._linear]
            self._hidden, self._heads = (
                layers[: self._num_hidden],
                layers[self._num_hidden :],
            )
            self._where = self._first.data_ptr()
        return True


def _head(body: Node, head: ArrayLayer, learns: bool) -> Node:
    output, saved = head.forward(body.array)
    return Node(
        output, (body,), lambda grad: (head.backward(saved, grad, learns, True),)
    )
