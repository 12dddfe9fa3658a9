"""Reverse-mode differentiation of a few large functions of arrays.

Autograd records the many small operations of a loss, which takes longer than to compute
them. Here a loss consists of some ten functions: networks, distributions and losses.
Their vector-Jacobian products are written out. An algorithm writes one sum of losses,
of tensors or of nodes."""

from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.core.types import FloatArray

Vjp: TypeAlias = Callable[[FloatArray], tuple[FloatArray, ...]]
"""From the gradient of a function's output to those of its inputs. It may overwrite the
first."""


@final
class Node:
    """An array, the nodes from which it was computed, and its vector-Jacobian product.
    A node without parents adds its gradient to that of the parameters."""

    __slots__ = ("_parents", "_vjp", "array")

    def __init__(
        self, array: FloatArray, parents: tuple["Node", ...], vjp: Vjp
    ) -> None:
        self.array = array
        self._parents = parents
        self._vjp = vjp

    def detach(self) -> Tensor:
        """The values as a tensor that shares their memory."""
        return torch.from_numpy(np.asarray(self.array))

    def item(self) -> float:
        """The value of a scalar."""
        return float(self.array)

    def squeeze(self, axis: int) -> "Node":
        """Without an axis of length 1."""
        array = self.array
        return Node(
            array.squeeze(axis), (self,), lambda grad: (grad.reshape(array.shape),)
        )

    def mean(self) -> "Node":
        """The mean of all values, a scalar."""
        array = self.array
        size = array.size
        return Node(
            np.add.reduce(array, None) / size,
            (self,),
            lambda grad: (np.full(array.shape, grad / size, np.float32),),
        )

    def backward(self) -> None:
        """Adds the gradient of this scalar to that of the parameters."""
        grads: dict[Node, FloatArray] = {self: np.ones((), np.float32)}
        for node in reversed(self._in_order()):
            of_parents = node._vjp(grads[node])
            for parent, grad in zip(node._parents, of_parents, strict=True):
                grads[parent] = grads[parent] + grad if parent in grads else grad

    def _in_order(self) -> list["Node"]:
        order: dict[Node, None] = {}

        def visit(node: Node) -> None:
            for parent in node._parents:
                if parent not in order:
                    visit(parent)
            order[node] = None

        visit(self)
        return list(order)

    def __neg__(self) -> "Node":
        return -1.0 * self

    def __add__(self, other: "Differentiable") -> "Node":
        if isinstance(other, Node):
            return Node(
                self.array + other.array,
                (self, other),
                lambda grad: (grad, grad.copy()),
            )
        return Node(self.array + other.numpy(), (self,), lambda grad: (grad,))

    __radd__ = __add__

    def __sub__(self, other: "Differentiable") -> "Node":
        if isinstance(other, Node):
            return Node(
                self.array - other.array, (self, other), lambda grad: (grad, -grad)
            )
        return self + -other

    def __rsub__(self, other: Tensor) -> "Node":
        return -self + other

    def __mul__(self, factor: Tensor | float) -> "Node":
        constant = factor.numpy() if isinstance(factor, Tensor) else factor
        return Node(self.array * constant, (self,), lambda grad: (grad * constant,))

    __rmul__ = __mul__


def parameter(tensor: Tensor) -> Node:
    """A trained tensor on the CPU that has a gradient, as a node."""
    assert tensor.grad is not None
    total: FloatArray = tensor.grad.numpy()

    def vjp(grad: FloatArray) -> tuple[()]:
        np.add(total, grad, out=total)
        return ()

    return Node(tensor.detach().numpy(), (), vjp)


def minimum(first: Node, second: Node) -> Node:
    """The smaller of two values each, of equal shapes. Only that one, at a tie the
    first, has a gradient."""
    is_first = first.array <= second.array

    def vjp(grad: FloatArray) -> tuple[FloatArray, FloatArray]:
        return grad * is_first, grad * ~is_first

    return Node(np.minimum(first.array, second.array), (first, second), vjp)


def beside(constant: FloatArray, node: Node) -> Node:
    """A constant (B, C) and a node (B, A) side by side, (B, C + A)."""
    width = constant.shape[1]
    return Node(
        np.hstack([constant, node.array]), (node,), lambda grad: (grad[:, width:],)
    )


Differentiable: TypeAlias = Tensor | Node
"""What a loss is made of: tensors where autograd differentiates it, else nodes."""
