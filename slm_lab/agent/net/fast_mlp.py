"""Multilayer perceptrons as one node of the autograd graph, their backward written out.

In the small networks of reinforcement learning torch's bookkeeping, and its tanh, take longer than
the arithmetic. The smallest learn without torch, by `array_mlp`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear
from typing_extensions import override

from slm_lab.core.types import FloatArray


class Kernel(NamedTuple):
    """An activation and its derivative, in place."""

    apply: Callable[[Tensor], Tensor]
    """Activates a tensor in place and returns it."""
    backward_: Callable[[Tensor, Tensor], Tensor]
    """(gradient of the output, output) to the gradient of the input, written into the first."""
    apply_array: Callable[[FloatArray], None]
    """Activates an array in place."""
    backward_array: Callable[[FloatArray, FloatArray], None]
    """`backward_` of arrays."""


def tanh_(x: Tensor) -> Tensor:
    """tanh in place."""
    if not x.is_cpu:
        return x.tanh_()
    _tanh_array(x.numpy())
    return x


def _relu_backward_(grad: Tensor, output: Tensor) -> Tensor:
    torch.ops.aten.threshold_backward.grad_input(grad, output, 0, grad_input=grad)
    return grad


def _tanh_backward_(grad: Tensor, output: Tensor) -> Tensor:
    torch.ops.aten.tanh_backward.grad_input(grad, output, grad_input=grad)
    return grad


_CPU = torch.cpu.get_capabilities()
SLOW_TANH = bool(_CPU.get("avx2")) and not _CPU.get("avx512_f")
"""Whether NumPy's tanh is no vector kernel here. With AVX-512 it takes a tenth of torch's time."""
FEW_NUMBERS = 4096
"""Up to so many numbers one call is faster than four."""


def _tanh_array(x: FloatArray) -> None:
    if not SLOW_TANH or x.size < FEW_NUMBERS:
        np.tanh(x, out=x)
        return
    x += x  # 2 σ(2x) − 1
    torch.from_numpy(x).sigmoid_()
    x += x
    x -= 1.0


def _relu_array(x: FloatArray) -> None:
    np.maximum(x, 0, out=x)


def _tanh_backward_array(grad: FloatArray, output: FloatArray) -> None:
    slope = output * output
    np.subtract(1, slope, out=slope)
    grad *= slope


def _relu_backward_array(grad: FloatArray, output: FloatArray) -> None:
    grad *= output > 0


KERNELS: dict[str, Kernel] = {
    "Tanh": Kernel(tanh_, _tanh_backward_, _tanh_array, _tanh_backward_array),
    "ReLU": Kernel(torch.relu_, _relu_backward_, _relu_array, _relu_backward_array),
}
"""Activations whose derivative follows from their output, by class name in torch.nn."""


NARROW_RATIO = 8
"""A product with at least this many times as many rows as columns is computed transposed."""


class Matmul(NamedTuple):
    """How linear layers multiply: with torch, or with NumPy."""

    linear: Callable[[Tensor, Tensor, Tensor], Tensor]
    """x Wᵀ + b from (B, in), (out, in) and (out,)."""
    product: Callable[[Tensor, Tensor], Tensor]
    """The product of two matrices."""


def mlp_forward(
    kernel: Kernel, matmul: Matmul, num_hidden: int, obs: Tensor, parameters: Sequence[Tensor]
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """`obs` (B, D) and every hidden layer's output, and one output per head; keeps no graph.
    `parameters` are weight and bias of each hidden layer, then of each head."""
    hidden = [obs]
    pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
    for weight, bias in pairs[:num_hidden]:
        hidden.append(kernel.apply(matmul.linear(hidden[-1], weight, bias)))
    outputs = [matmul.linear(hidden[-1], weight, bias) for weight, bias in pairs[num_hidden:]]
    return hidden, tuple(outputs)


class MLPFunction(torch.autograd.Function):
    """Hidden layers h ← f(h Wᵀ + b), then one linear head per output."""

    @staticmethod
    @override
    def forward(
        ctx: Any, kernel: Kernel, matmul: Matmul, num_hidden: int, obs: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        hidden, outputs = mlp_forward(kernel, matmul, num_hidden, obs, parameters)
        ctx.save_for_backward(*hidden, *parameters[::2])
        ctx.kernel, ctx.product, ctx.num_hidden = kernel, matmul.product, num_hidden
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    @override
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        num_hidden, product = ctx.num_hidden, ctx.product
        hidden, weights = ctx.saved_tensors[: num_hidden + 1], ctx.saved_tensors[num_hidden + 1 :]
        wanted = ctx.needs_input_grad[4:]
        grads: list[Tensor | None] = [None] * (2 * len(weights))

        def take(layer: int, grad: Tensor, x: Tensor) -> None:
            if wanted[2 * layer]:
                grads[2 * layer] = product(grad.t(), x)
            if wanted[2 * layer + 1]:
                grads[2 * layer + 1] = grad.sum(0)

        heads = range(num_hidden, len(weights))
        for layer, grad_output in zip(heads, grad_outputs, strict=True):
            take(layer, grad_output, hidden[-1])
        if num_hidden == 0 and not ctx.needs_input_grad[3]:
            return (None, None, None, None, *grads)
        grad = product(grad_outputs[0], weights[num_hidden])
        for layer, grad_output in zip(heads[1:], grad_outputs[1:], strict=True):
            grad.addmm_(grad_output, weights[layer])
        for layer in reversed(range(num_hidden)):
            grad = ctx.kernel.backward_(grad, hidden[layer + 1])
            take(layer, grad, hidden[layer])
            if layer > 0 or ctx.needs_input_grad[3]:
                grad = product(grad, weights[layer])
        return (None, None, None, grad if ctx.needs_input_grad[3] else None, *grads)


def linear_with(matmul: Matmul, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b with its gradients: a perceptron without hidden layers, of any activation."""
    outputs: tuple[Tensor] = MLPFunction.apply(  # type: ignore[no-untyped-call]
        KERNELS["ReLU"], matmul, 0, x, weight, bias
    )
    return outputs[0]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b; with few columns as (bᵀ aᵀ)ᵀ, which the CPU's library does up to five times faster."""
    if NARROW_RATIO * b.shape[1] <= a.shape[0]:
        return b.t().mm(a.t()).t()
    return a.mm(b)


WIDE = 64
"""NumPy multiplies matrices whose sides are all at least this long. Torch calls others faster."""


def _numpy_product(a: Tensor, b: Tensor) -> Tensor:
    if not a.is_cpu or min(*a.shape, b.shape[1]) < WIDE:
        return _product(a, b)
    return torch.from_numpy(np.dot(a.detach().numpy(), b.detach().numpy()))


def _numpy_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if not x.is_cpu or min(*x.shape, len(weight)) < WIDE:
        return linear(x, weight, bias)
    return _numpy_product(x, weight.t()).add_(bias)


MATMUL = {"torch": Matmul(linear, _product), "numpy": Matmul(_numpy_linear, _numpy_product)}
"""By the value of `agent.net.matmul`: the library that multiplies float32 on the CPU."""
