"""Products of NumPy in layers that autograd differentiates."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear
from typing_extensions import override

from slm_lab.agent.torch_versions import is_exporting

WIDE = 64
"""The least side of matrices that NumPy multiplies. torch multiplies narrower ones
faster, because NumPy's gradient is a Python function."""


def linear_by_numpy(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b, by NumPy for wide matrices. A file holds torch's product."""
    if is_exporting() or x.dim() != 2 or min(*x.shape, *weight.shape) < WIDE:
        return linear(x, weight, bias)
    product: Tensor = _NumPyProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product + bias


class _NumPyProduct(torch.autograd.Function):
    """x Wᵀ from (B, in) and (out, in)."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _dot(x, weight.t())

    @staticmethod
    @torch.autograd.function.once_differentiable
    @override
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        x_grad = _dot(grad, weight) if needs_x else None
        weight_grad = _dot(grad.t(), x) if needs_weight else None
        return x_grad, weight_grad


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.from_numpy(np.dot(a.detach().numpy(), b.detach().numpy()))
