"""Activations and linear layers of arrays, by NumPy or by torch.

NumPy computes few numbers before torch has called its kernel; many are faster by
torch."""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.types import FloatArray

_CPU = torch.cpu.get_capabilities()
SLOW_TANH = bool(_CPU.get("avx2")) and not _CPU.get("avx512_f")
"""Whether NumPy's tanh is no vector kernel here. With AVX-512 it takes a tenth of
torch's time."""
FEW_NUMBERS = 4096
"""For fewer numbers NumPy takes less time than torch, whatever the activation."""
FEW_MULTIPLICATIONS = 2**20
"""NumPy multiplies matrices with at most so many multiplications."""


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
    """Beyond so many in one product, torch multiplies."""

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
        """From the gradient of the output, (B, out), to that of the input, (B, in), if
        that is passed on. Adds to the gradients of the parameters if they learn."""
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
