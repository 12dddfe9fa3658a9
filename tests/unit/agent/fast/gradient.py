"""Written-out gradients beside those of autograd."""

import torch

from tests.support import randn


def numbers(*shape, seed=0, scale=1.0):
    return scale * randn(*shape, seed=seed)


def by_autograd(function, values):
    """The value of a scalar function at `values`, and its gradient there."""
    tensor = values.clone().requires_grad_()
    value = function(tensor)
    value.backward()
    assert value.item() != 0
    assert tensor.grad.abs().sum() > 0
    return value.item(), tensor.grad


def assert_gradient(found, expected):
    torch.testing.assert_close(
        torch.from_numpy(found.copy()), expected, rtol=1e-5, atol=1e-7
    )
