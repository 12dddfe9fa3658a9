"""Networks of arrays, in the memory of the networks of torch: to act, to evaluate and
to learn without autograd."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from typing_extensions import override

from slm_lab.agent.fast.layers import KERNELS, ArrayLayer, HalfLayer, Kernel, NumPyLayer
from slm_lab.agent.net.dueling import DuelingNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.policy_value import PolicyHead
from slm_lab.agent.net.torch_arc import TorchArcNet
from slm_lab.core.types import Array, FloatArray

Outputs: TypeAlias = tuple[FloatArray, ...]


class Trace(NamedTuple):
    """One pass through a network, and the way back."""

    outputs: Outputs
    """(B, head_dim) of each head"""
    backward: Callable[..., FloatArray]
    """From the gradient of each output to the gradient of the input, (B, D), if that
    was asked for. Adds to the gradients of the parameters if they learn."""


class ArrayNet(ABC):
    """A network of arrays for acting."""

    @abstractmethod
    def forward(self, obs: Array) -> Outputs:
        """(N, D) to one (N, head_dim) per head."""


class TracedNet(ArrayNet):
    """A network of arrays that can learn."""

    @abstractmethod
    def trace(self, obs: Array, learns: bool = True, passes_on: bool = False) -> Trace:
        """`forward` of (B, D), with the way back to the parameters if they learn, and
        to the input if the gradient is passed on."""


@final
class ArrayMLP(TracedNet):
    """A multilayer perceptron in the memory of the layers of `net`, wherever that is at
    the moment."""

    def __init__(self, net: MLPNet, kernel: Kernel) -> None:
        self._kernel = kernel
        exact: type[ArrayLayer] = NumPyLayer if net.by_numpy else ArrayLayer
        inner: type[ArrayLayer] = HalfLayer if net.is_half else exact
        kinds = [exact] * net.num_exact + [inner] * len(net.hidden)
        kinds = [*kinds[: len(net.hidden)], *[exact] * len(net.heads)]
        layers = [
            layer for layer in (*net.hidden, *net.heads) if isinstance(layer, nn.Linear)
        ]
        self._num_hidden = len(net.hidden)
        self._linear = list(zip(kinds, layers, strict=True))
        self._first: Tensor = layers[0].weight
        self._where = 0
        self._hidden: list[ArrayLayer] = []
        self._heads: list[ArrayLayer] = []

    @override
    def forward(self, obs: Array) -> Outputs:
        x = self._floats(obs)
        for layer in self._hidden:
            x, _ = layer.forward(x)
            self._kernel.apply(x)
        return tuple(head.forward(x)[0] for head in self._heads)

    def forward_tensor(self, obs: Tensor) -> tuple[Tensor, ...]:
        """`forward` of a tensor without a gradient."""
        return tuple(map(torch.from_numpy, self.forward(obs.detach().numpy())))

    @override
    def trace(self, obs: Array, learns: bool = True, passes_on: bool = False) -> Trace:
        x = self._floats(obs)
        steps: list[tuple[ArrayLayer, Any, FloatArray]] = []
        for layer in self._hidden:
            x, saved = layer.forward(x)
            self._kernel.apply(x)
            steps.append((layer, saved, x))
        results = [head.forward(x) for head in self._heads]

        def backward(*grads: FloatArray) -> FloatArray:
            into_body = [
                head.backward(saved, grad, learns, passes_on=True)
                for head, (_, saved), grad in zip(
                    self._heads, results, grads, strict=True
                )
            ]
            grad = reduce(np.add, into_body)
            for layer, saved, output in reversed(steps):
                self._kernel.backward(grad, output)
                goes_on = passes_on or layer is not steps[0][0]
                grad = layer.backward(saved, grad, learns, goes_on)
            return grad

        return Trace(tuple(output for output, _ in results), backward)

    def _floats(self, obs: Array) -> FloatArray:
        """The input as the layers take it. Finds the arrays again after a flat vector
        has moved to other memory, with all parameters and gradients."""
        if self._first.data_ptr() != self._where:
            layers = [kind(layer.weight, layer.bias) for kind, layer in self._linear]
            self._hidden = layers[: self._num_hidden]
            self._heads = layers[self._num_hidden :]
            self._where = self._first.data_ptr()
        return np.ascontiguousarray(obs, np.float32)


@final
class ArrayPolicyHead(TracedNet):
    """A `PolicyHead` with a scale."""

    def __init__(self, net: ArrayNet, scale: nn.Parameter) -> None:
        self._net = net
        self._scale = scale

    @override
    def forward(self, obs: Array) -> Outputs:
        params, *rest = self._net.forward(obs)
        return (self._with_scale(params), *rest)

    @override
    def trace(self, obs: Array, learns: bool = True, passes_on: bool = False) -> Trace:
        assert isinstance(self._net, TracedNet)
        (params, *rest), net_backward = self._net.trace(obs, learns, passes_on)
        size = params.shape[-1]

        def backward(grad: FloatArray, *of_rest: FloatArray) -> FloatArray:
            of_params, of_scale = np.split(grad, [size], -1)
            if learns:
                add_gradient(self._scale, np.add.reduce(of_scale, 0))
            return net_backward(of_params, *of_rest)

        return Trace((self._with_scale(params), *rest), backward)

    def _with_scale(self, params: FloatArray) -> FloatArray:
        """(N, head_dim) and (A,) side by side, (N, head_dim + A)."""
        scale = self._scale.detach().numpy()
        rows, size = params.shape
        both = np.empty((rows, size + len(scale)), np.float32)
        both[:, :size] = params
        both[:, size:] = scale
        return both


@final
class ArrayDueling(ArrayNet):
    """A `DuelingNet`."""

    def __init__(self, streams: ArrayNet) -> None:
        self._streams = streams

    @override
    def forward(self, obs: Array) -> Outputs:
        value, advantage = self._streams.forward(obs)
        return (value + advantage - advantage.mean(-1, keepdims=True),)


WRITTEN_OUT = (
    MLPNet.forward,
    TorchArcNet.forward,
    DuelingNet.forward,
    PolicyHead.forward,
)
"""What arrays can compute; a class derived from one of these nets may do otherwise."""


def array_net(net: nn.Module) -> ArrayNet | None:
    """The network of arrays that computes what `net` does on the CPU; None where only
    torch can."""
    if type(net).forward not in WRITTEN_OUT:
        return None
    if isinstance(net, MLPNet):
        return array_mlp(net)
    if isinstance(net, TorchArcNet):
        return None if len(net.body) else array_mlp(net.tail)
    if isinstance(net, DuelingNet):
        streams = array_net(net.streams)
        return None if streams is None else ArrayDueling(streams)
    assert isinstance(net, PolicyHead)
    inner = array_net(net.net)
    if inner is None or net.scale is None:
        return inner
    return ArrayPolicyHead(inner, net.scale)


def array_mlp(net: MLPNet) -> ArrayMLP | None:
    """The arrays of a plain stack of layers with tanh or ReLU; None for another one."""
    kernel = KERNELS.get(net.activation)
    if kernel is None or not net.is_plain or not len(net.heads):
        return None
    if any(is_parametrized(layer) for layer in (*net.hidden, *net.heads)):
        return None
    return ArrayMLP(net, kernel)


def add_gradient(parameter: nn.Parameter, grad: FloatArray) -> None:
    """Adds to the gradient of a parameter on the CPU."""
    assert parameter.grad is not None
    total: FloatArray = parameter.grad.numpy()
    np.add(total, grad, out=total)
