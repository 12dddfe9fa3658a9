"""Multilayer perceptrons by NumPy, to act and to learn.

For the few observations that an actor sees at a time, and for small networks, torch takes longer
to call its kernels than NumPy to compute."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from slm_lab.agent.autodiff import Node
from slm_lab.agent.device import host_arrays, moved
from slm_lab.agent.net.fast_mlp import Kernel
from slm_lab.core.types import Array, FloatArray, Shape


class ArrayNet:
    """A network that can run without torch where torch is slower."""

    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """`forward` of observations (N, *obs_shape) by NumPy; None where torch is faster."""
        return None

    def forward_nodes(self, obs: Array) -> tuple[Node, ...] | None:
        """`forward` of observations (B, *obs_shape) for a loss of nodes; None where autograd is
        faster, or the only way."""
        return None


def act_forward(net: nn.Module, obs: Array, device: torch.device) -> tuple[FloatArray, ...]:
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


def forward_nodes(net: nn.Module, obs: Tensor) -> tuple[Node, ...]:
    """The outputs of a net that has nodes, for observations (B, *obs_shape)."""
    assert isinstance(net, ArrayNet)
    nodes = net.forward_nodes(obs.numpy())
    assert nodes is not None
    return nodes


MAX_PRODUCT = 2**18
"""Multiplications in one product up to which an actor's network is faster by NumPy."""
MAX_WEIGHTS = 2**14
"""Entries of the largest weight up to which a network learns faster by NumPy."""


@lru_cache(16)  # rollouts of whole episodes have ever new lengths
def _ones(rows: int) -> FloatArray:
    return np.ones(rows, np.float32)


class _Layer(NamedTuple):
    """A linear layer's parameters and their gradients, in the memory of the flat vectors."""

    weight: FloatArray
    """(out, in)"""
    transposed: FloatArray
    """(in, out), the same memory"""
    bias: FloatArray
    weight_grad: FloatArray
    bias_grad: FloatArray

    def linear(self, x: FloatArray) -> FloatArray:
        """x Wᵀ + b, (B, out)."""
        output: FloatArray = np.dot(x, self.transposed)
        output += self.bias
        return output

    def add_gradients(self, x: FloatArray, grad: FloatArray) -> None:
        """From the input (B, in) and the gradient of the output (B, out)."""
        weight_grad, bias_grad = self.weight_grad, self.bias_grad
        weight_grad += np.dot(grad.T, x)
        bias_grad += np.dot(_ones(len(grad)), grad)  # four times as fast as a sum


@final
class ArrayMLP:
    """A multilayer perceptron in the memory of the given tensors, wherever that is at the moment.
    `parameters` are weight and bias of each hidden layer, then of each head."""

    def __init__(self, kernel: Kernel, num_hidden: int, parameters: Sequence[Tensor]) -> None:
        self._kernel = kernel
        self._num_hidden = num_hidden
        self._parameters = parameters
        self._largest = max((weight.numel() for weight in parameters[::2]), default=1)
        self._where = 0
        self._layers: list[_Layer] = []

    def forward(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """(N, D) to one (N, head_dim) per head; None for many rows, and away from the CPU."""
        if len(obs) * self._largest > MAX_PRODUCT or not self._look_up():
            return None
        x = obs
        for layer in self._layers[: self._num_hidden]:
            x = layer.linear(x)
            self._kernel.apply_array(x)
        return tuple(layer.linear(x) for layer in self._layers[self._num_hidden :])

    def forward_nodes(self, obs: Array) -> tuple[Node, ...] | None:
        """(B, D) to one node (B, head_dim) per head; None for large layers, and away from the
        CPU."""
        if self._largest > MAX_WEIGHTS or not self._look_up():
            return None
        hidden = [np.asarray(obs, np.float32)]
        for layer in self._layers[: self._num_hidden]:
            hidden.append(layer.linear(hidden[-1]))
            self._kernel.apply_array(hidden[-1])
        body = Node(hidden[-1], (), partial(self._body_vjp, hidden))
        return tuple(_head(body, layer) for layer in self._layers[self._num_hidden :])

    def _body_vjp(self, hidden: list[FloatArray], grad: FloatArray) -> tuple[FloatArray, ...]:
        """Of the observations and every hidden layer's output."""
        for index in reversed(range(self._num_hidden)):
            layer = self._layers[index]
            self._kernel.backward_array(grad, hidden[index + 1])
            layer.add_gradients(hidden[index], grad)
            if index > 0:
                grad = np.dot(grad, layer.weight)
        return ()

    def _look_up(self) -> bool:
        """Whether the parameters are on the CPU. Gets the arrays again after a flat vector has
        moved to other memory, with all parameters and gradients."""
        first = self._parameters[0]
        if not first.is_cpu:
            return False
        if first.data_ptr() != self._where:
            pairs = zip(self._parameters[::2], self._parameters[1::2], strict=True)
            self._layers = [_layer(weight, bias) for weight, bias in pairs]
            self._where = first.data_ptr()
        return True


def _layer(weight: Tensor, bias: Tensor) -> _Layer:
    w, b = weight.detach().numpy(), bias.detach().numpy()
    grads = [np.empty(0) if p.grad is None else p.grad.numpy() for p in (weight, bias)]
    return _Layer(w, w.T, b, *grads)


def _head(body: Node, layer: _Layer) -> Node:
    x = body.array

    def vjp(grad: FloatArray) -> tuple[FloatArray]:
        layer.add_gradients(x, grad)
        return (np.dot(grad, layer.weight),)

    return Node(layer.linear(x), (body,), vjp)
