"""Networks of arrays, in the memory of the networks of torch: to act, to evaluate and
to learn without autograd.

NumPy computes few numbers before torch has called its kernel; many are faster by
torch."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from typing_extensions import override

from slm_lab.agent.net.body import BodyNet
from slm_lab.agent.net.dueling import DuelingNet, dueling_q
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.net.policy_value import PolicyHead
from slm_lab.agent.net.return_distribution import QuantileReturn, ReturnHead
from slm_lab.agent.net.torch_arc import ArcBody
from slm_lab.agent.torch_versions import cpu_capabilities
from slm_lab.core.types import Array, FloatArray

_CPU = cpu_capabilities()
SLOW_TANH = bool(_CPU.get("avx2")) and not _CPU.get("avx512_f")
"""Whether NumPy's tanh is no vector kernel here. With AVX-512 it takes a tenth of
torch's time."""
FEW_NUMBERS = 4096
"""Below this many numbers NumPy takes less time than torch, whatever the activation."""
FEW_MULTIPLICATIONS = 2**20
"""The most multiplications in a product of matrices that NumPy computes."""


class Kernel(NamedTuple):
    """An activation and its derivative, in place."""

    apply: Callable[[FloatArray], None]
    backward: Callable[[FloatArray, FloatArray], None]
    """(gradient of the output, output) to the gradient of the input, written into the
    first."""


def _tanh(x: FloatArray) -> None:
    if not SLOW_TANH or x.size < FEW_NUMBERS:
        np.tanh(x, out=x)
        return
    x += x  # 2 σ(2x) − 1
    torch.from_numpy(x).sigmoid_()
    x += x
    x -= 1.0


def _tanh_backward(grad: FloatArray, output: FloatArray) -> None:
    slope = output * output
    np.subtract(1, slope, out=slope)
    grad *= slope


def _relu(x: FloatArray) -> None:
    if x.size < FEW_NUMBERS:
        np.maximum(x, 0, out=x)
    else:
        torch.from_numpy(x).relu_()


def _relu_backward(grad: FloatArray, output: FloatArray) -> None:
    into = torch.from_numpy(grad)
    torch.ops.aten.threshold_backward.grad_input(
        into, torch.from_numpy(output), 0, grad_input=into
    )


KERNELS: dict[object, Kernel] = {
    torch.tanh: Kernel(_tanh, _tanh_backward),
    torch.relu: Kernel(_relu, _relu_backward),
}
"""Activations whose derivative follows from their output, by the function of torch."""


@lru_cache(16)  # rollouts of whole episodes have ever new lengths
def _ones(rows: int) -> FloatArray:
    return np.ones(rows, np.float32)


def _by_torch(a: FloatArray, b: FloatArray) -> FloatArray:
    return torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()


class ArrayLayer:
    """A linear layer in float32, in the memory of its parameters and of their
    gradients."""

    max_multiplications = FEW_MULTIPLICATIONS
    """The most multiplications in a product by NumPy. torch computes larger
    products."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight: FloatArray = weight.detach().numpy()
        self.bias: FloatArray = bias.detach().numpy()
        self._transposed = self.weight.T
        self._max_rows = self.max_multiplications // max(weight.numel(), 1)
        if weight.grad is not None and bias.grad is not None:
            self.weight_grad: FloatArray = weight.grad.numpy()
            self.bias_grad: FloatArray = bias.grad.numpy()

    def forward(self, x: FloatArray) -> tuple[FloatArray, Any]:
        """(B, in) to x Wᵀ + b, (B, out), and what `backward` needs."""
        product = _by_torch
        if len(x) <= self._max_rows:
            product = np.dot
        output = product(x, self._transposed)
        output += self.bias
        return output, x

    def backward(
        self, saved: Any, grad: FloatArray, learns: bool, passes_on: bool
    ) -> FloatArray:
        """Takes the gradient of the output, (B, out). Returns the gradient of the
        input, (B, in), if it `passes_on`. Adds to the gradients of the parameters if it
        `learns`."""
        product = _by_torch
        if len(grad) <= self._max_rows:
            product = np.dot
        if learns:
            self._add(product(grad.T, saved), grad)
        if passes_on:
            return product(grad, self.weight)
        return grad

    def _add(self, weight_grad: FloatArray, grad: FloatArray) -> None:
        self.weight_grad += weight_grad
        self.bias_grad += np.dot(_ones(len(grad)), grad)  # four times as fast as a sum


@final
class NumPyLayer(ArrayLayer):
    """NumPy multiplies everything."""

    max_multiplications = sys.maxsize


@final
class HalfLayer(ArrayLayer):
    """It multiplies in bfloat16, rounded as by torch.autocast."""

    @override
    def forward(self, x: FloatArray) -> tuple[FloatArray, Any]:
        half = _half(x)
        weight = _half(self.weight)
        output = torch.addmm(_half(self.bias), half, weight.t())
        return output.float().numpy(), (half, weight)

    @override
    def backward(
        self, saved: Any, grad: FloatArray, learns: bool, passes_on: bool
    ) -> FloatArray:
        x, weight = saved
        half = _half(grad)
        if learns:
            self._add(half.t().mm(x).float().numpy(), grad)
        if passes_on:
            return half.mm(weight).float().numpy()
        return grad


def _half(array: FloatArray) -> Tensor:
    return torch.from_numpy(array).bfloat16()


Outputs: TypeAlias = tuple[FloatArray, ...]


class Trace(NamedTuple):
    """One pass through a network, and the way back."""

    outputs: Outputs
    """(B, head_dim) of each head"""
    backward: Callable[..., FloatArray]
    """Maps the gradient of each output to the gradient of the input, (B, D), if that
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
        """`forward` of (B, D), with the way back for a gradient. It leads to the
        parameters if the net `learns`, and to the input if it `passes_on`."""


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
        size = value.shape[-1]
        if size == 1:
            return (value + advantage - advantage.mean(-1, keepdims=True),)
        both = torch.from_numpy(value), torch.from_numpy(advantage)
        return (dueling_q(*both).numpy(),)


@final
class ArrayReturnHead(ArrayNet):
    """A `ReturnHead`."""

    def __init__(self, net: ArrayNet, head: ReturnHead) -> None:
        self._net = net
        self._head = head

    @override
    def forward(self, obs: Array) -> Outputs:
        (outputs,) = self._net.forward(obs)
        returns = self._head.returns
        if isinstance(returns, QuantileReturn):
            quantiles = outputs.reshape(len(outputs), -1, returns.size)
            return (np.add.reduce(quantiles, -1) / returns.size,)
        return (self._head.means(torch.from_numpy(outputs)).numpy(),)


WRITTEN_OUT = (
    MLPNet.forward,
    BodyNet.forward,
    DuelingNet.forward,
    PolicyHead.forward,
    ReturnHead.forward,
)
"""What arrays can compute; a class derived from one of these nets may do otherwise."""


def array_net(net: nn.Module) -> ArrayNet | None:
    """The network of arrays that computes what `net` does; None where only torch
    can."""
    if type(net).forward not in WRITTEN_OUT:
        return None
    if isinstance(net, MLPNet):
        return array_mlp(net)
    if isinstance(net, BodyNet):
        is_perceptron = isinstance(net.body, ArcBody) and net.body.is_empty
        return array_mlp(net.tail) if is_perceptron else None
    inner = None
    if isinstance(net, DuelingNet):
        inner = array_net(net.streams)
    elif isinstance(net, PolicyHead | ReturnHead):
        inner = array_net(net.net)
    if inner is None:
        return None
    return _around(inner, net)


def _around(inner: ArrayNet, net: nn.Module) -> ArrayNet:
    """The arrays of `net`, around the arrays of the net in it."""
    if isinstance(net, DuelingNet):
        return ArrayDueling(inner)
    if isinstance(net, ReturnHead):
        return ArrayReturnHead(inner, net)
    if isinstance(net, PolicyHead) and net.scale is not None:
        return ArrayPolicyHead(inner, net.scale)
    return inner


def array_mlp(net: MLPNet) -> ArrayMLP | None:
    """The arrays of a plain stack of layers with tanh or ReLU on a CPU; None for
    another one."""
    kernel = KERNELS.get(net.activation)
    if kernel is None or not net.is_plain or not len(net.heads):
        return None
    if not all(parameter.is_cpu for parameter in net.parameters()):
        return None
    if any(is_parametrized(layer) for layer in (*net.hidden, *net.heads)):
        return None
    return ArrayMLP(net, kernel)


def add_gradient(parameter: nn.Parameter, grad: FloatArray) -> None:
    """Adds to the gradient of a parameter on the CPU."""
    assert parameter.grad is not None
    total: FloatArray = parameter.grad.numpy()
    np.add(total, grad, out=total)
