"""A multilayer perceptron by NumPy, for as few observations as an actor sees at a time.

The products are so small that torch's way to them is longer than they are.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from torch import Tensor

from slm_lab.core.types import Array, FloatArray

LARGEST = 2**18
"""Multiplications in one product up to which it pays, and NumPy's library keeps to one thread."""


@final
class ArrayMLP:
    """Works on the memory of the tensors it is given, wherever that is at the moment.

    `parameters` are weight and bias of each hidden layer, then of each head.
    """

    def __init__(
        self,
        activate: Callable[[FloatArray], None],
        num_hidden: int,
        parameters: Sequence[Tensor],
    ) -> None:
        self._activate = activate
        self._num_hidden = num_hidden
        self._parameters = parameters
        self._most_rows = LARGEST // max((weight.numel() for weight in parameters[::2]), default=1)
        self._where = 0
        self._layers: list[tuple[FloatArray, FloatArray]] = []

    def forward(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """(N, D) to one (N, head_dim) per head; None for many rows, and away from the CPU."""
        first = self._parameters[0]
        if len(obs) > self._most_rows or not first.is_cpu:
            return None
        if first.data_ptr() != self._where:
            self._look_up()
        x = obs
        for weight, bias in self._layers[: self._num_hidden]:
            x = np.dot(x, weight)
            x += bias
            self._activate(x)
        return tuple(np.dot(x, weight) + bias for weight, bias in self._layers[self._num_hidden :])

    def _look_up(self) -> None:
        """A flat vector may be bound to other memory, and all parameters with it."""
        arrays = [parameter.detach().numpy() for parameter in self._parameters]
        self._layers = [(w.T, b) for w, b in zip(arrays[::2], arrays[1::2], strict=True)]
        self._where = self._parameters[0].data_ptr()
