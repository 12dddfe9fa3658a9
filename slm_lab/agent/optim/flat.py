"""One flat vector per network.

After a network is built its parameters become views into one contiguous float32 vector.
Its gradients become views into a second. Its float buffers (running statistics) form a
third. Every global operation (optimizer step, norm, average, copy, share, save) is then
one tensor operation.

Some operations break the views silently and are not used: `.to()` after flattening,
`deepcopy`, `zero_grad(set_to_none=True)` and `load_state_dict(assign=True)`. `check`
finds such a break."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.core.errors import CheckpointError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import IntArray, StateDict

MOMENTS = ("count", "mean", "m2")
"""Buffers of one module with these names, in this order, merge as running moments
do."""


MOMENTS_WINDOW = 1_000_000
"""Samples that such moments look back over. Older samples fade, so that old targets do
not scale new ones. Fading also keeps counts exact: beyond 2²⁴ float32 no longer counts
single samples."""


COUNTER = "num_batches"
"""A buffer of this name counts samples. Workers that merge add up their counts."""
DIRECTIONS = ("_u", "_v")
"""Buffers of these names are unit vectors (the singular vectors of `spectral_norm`).
The mean of unit vectors is no unit vector. So workers that merge keep their own."""


SavedLayout: TypeAlias = Sequence[Sequence[Any]]
"""[name, shape] of each parameter and buffer, in the order of the vectors."""


class Order(NamedTuple):
    """The places that the entries of a vector had in a saved vector of another
    order."""

    entries: Tensor
    """(P,) int64: the place of each entry"""
    parameters: tuple[int, ...]
    """The place of each parameter among the parameters"""


@dataclass(frozen=True)
class Layout:
    """The places of parameters and buffers in a network's vectors."""

    names: tuple[str, ...]
    """The names of the parameters, in vector order."""
    saved: SavedLayout
    """The layout as a checkpoint records it."""
    older: SavedLayout
    """The parameters as the module lists them. Older versions had this order, and did
    not record it everywhere."""

    def order_of(self, saved: SavedLayout | None) -> Order | None:
        """The order of a vector that was saved with this layout; None if it is the
        same. Without a record it is the order of older versions."""
        layout = saved
        if layout is None:
            layout = self.older
        before = [name for name, _ in layout[: len(self.names)]]
        if before == list(self.names):
            return None
        place = {}
        start = 0
        for name, shape in layout:
            end = start + math.prod(shape)
            place[name] = torch.arange(start, end)
            start = end
        entries = torch.cat([place[name] for name in self.names])
        return Order(entries, tuple(before.index(name) for name in self.names))


class FlatParameters(SavedFields):
    """Owns the storage behind the parameters, gradients and float buffers of one
    network. `vector` and `grad` are (P,) float32, `statistics` is (S,) float32. They
    are in the order in which the module lists its parameters and buffers. The
    parameters of recurrent layers come first, see `_listed`."""

    saved: ClassVar = {
        "layout": "layout.saved",
        "vector": "vector",
        "statistics": "statistics",
    }

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._parameters = _listed(module)
        self._buffers = [
            (name, owner, key)
            for prefix, owner in module.named_modules()
            for key, buffer in owner.named_buffers(prefix="", recurse=False)
            if buffer.is_floating_point()
            for name in [f"{prefix}.{key}" if prefix else key]
        ]
        self.views = [p for _, p in self._parameters]
        """The network's parameters, in vector order; their data and gradients are
        views."""
        values = [p.detach() for p in self.views]
        stats = [owner.get_buffer(key) for _, owner, key in self._buffers]
        wrong = [str(v.dtype) for v in [*values, *stats] if v.dtype != torch.float32]
        if wrong:
            raise TypeError(
                f"a flat vector holds float32 only, the network has {wrong[0]}"
            )
        device = values[0].device if values else torch.device("cpu")
        self._shapes = [v.shape for v in values]
        self._statistic_shapes = [s.shape for s in stats]
        names = tuple(name for name, _ in self._parameters)
        older = [[name, list(p.shape)] for name, p in module.named_parameters()]
        self.layout = Layout(names, self._saved_layout(), older)
        self.moments = _moments(
            [key for *_, key in self._buffers], self._statistic_shapes
        )
        """Slices of `statistics` with running moments, see `core.moments`."""
        self.counters = self._indices(COUNTER)
        """Indices in `statistics` (K,) of counts."""
        self.directions = self._indices(*DIRECTIONS)
        """Indices in `statistics` (K,) of unit vectors."""
        self.vector = _concatenate(values, device)
        self.grad = torch.zeros_like(self.vector)
        self.statistics = _concatenate(stats, device)
        self._bind()

    def rebind(self, vector: Tensor, statistics: Tensor) -> None:
        """Moves the network to other storage (shared memory, say), and to the values
        there. The values in `vector` (P,) and `statistics` (S,) become the network's.
        Gradients get fresh storage, because no gradient survives a move between
        processes."""
        if (
            vector.shape != self.vector.shape
            or statistics.shape != self.statistics.shape
        ):
            raise ValueError(
                f"cannot bind {tuple(self.vector.shape)} parameters and "
                f"{tuple(self.statistics.shape)} statistics to {tuple(vector.shape)} "
                f"and {tuple(statistics.shape)}"
            )
        self.vector = vector
        self.grad = torch.zeros_like(vector)
        self.statistics = statistics
        self._bind()

    @torch.no_grad()
    def copy_(self, other: "FlatParameters") -> None:
        """Copies the values of another network of the same architecture."""
        self.vector.copy_(other.vector)
        self.statistics.copy_(other.statistics)

    def check(self) -> None:
        """Raises RuntimeError if a parameter, gradient or buffer is no longer a
        view."""
        parts = _split(self.vector, self._shapes)
        grads = _split(self.grad, self._shapes)
        for (name, parameter), part, grad in zip(
            self._parameters, parts, grads, strict=True
        ):
            if parameter.data_ptr() != part.data_ptr():
                raise RuntimeError(f"parameter {name} has left the flat vector")
            if parameter.grad is None or parameter.grad.data_ptr() != grad.data_ptr():
                raise RuntimeError(f"the gradient of {name} has left the flat vector")
        statistics = _split(self.statistics, self._statistic_shapes)
        for (name, owner, key), part in zip(self._buffers, statistics, strict=True):
            if owner.get_buffer(key).data_ptr() != part.data_ptr():
                raise RuntimeError(f"buffer {name} has left the flat statistics vector")

    def named_values(self) -> dict[str, Tensor]:
        """Parameters and running statistics by name: views of both vectors."""
        parameters = {name: parameter.detach() for name, parameter in self._parameters}
        return parameters | {
            name: owner.get_buffer(key) for name, owner, key in self._buffers
        }

    @override
    @torch.no_grad()
    def load_state_dict(self, state: StateDict) -> None:
        """Copies saved values in place, so that sharing and views stay as they are.
        Raises CheckpointError when the saved network had another architecture or type
        of numbers."""
        saved = [[name, list(shape)] for name, shape in state["layout"]]
        built = self._saved_layout()
        count = len(self.views)
        if [*sorted(saved[:count]), *saved[count:]] != [
            *sorted(built[:count]),
            *built[count:],
        ]:
            raise CheckpointError(
                f"the saved network is {saved}, the spec now builds {built}"
            )
        vector = rearranged(state["vector"], self.layout.order_of(saved))
        for target, source in (
            (self.vector, vector),
            (self.statistics, state["statistics"]),
        ):
            # copy_ would broadcast, cast
            if (source.shape, source.dtype) != (target.shape, target.dtype):
                was, now = (
                    f"{tuple(values.shape)} of {values.dtype}"
                    for values in (source, target)
                )
                raise CheckpointError(
                    f"the saved network is {was}, the spec now builds {now}"
                )
            target.copy_(source)

    def _indices(self, *names: str) -> IntArray:
        """The indices in `statistics` of the buffers of these names, (K,)."""
        sizes = [shape.numel() for shape in self._statistic_shapes]
        named = [key in names for *_, key in self._buffers]
        return np.flatnonzero(np.repeat(named, sizes))

    def _saved_layout(self) -> list[list[object]]:
        shapes = [*self._shapes, *self._statistic_shapes]
        names = [name for name, *_ in [*self._parameters, *self._buffers]]
        return [[name, list(shape)] for name, shape in zip(names, shapes, strict=True)]

    def _bind(self) -> None:
        parts = _split(self.vector, self._shapes)
        grads = _split(self.grad, self._shapes)
        for (_, parameter), part, grad in zip(
            self._parameters, parts, grads, strict=True
        ):
            parameter.data = part
            parameter.grad = grad
        statistics = _split(self.statistics, self._statistic_shapes)
        for (_, owner, key), part in zip(self._buffers, statistics, strict=True):
            # autograd counts the changes of each buffer alone
            setattr(owner, key, part.data)


def saved_values(state: StateDict) -> dict[str, Tensor]:
    """The values in a `FlatParameters.state_dict`, by name. Raises ValueError if the
    vectors do not have the length that the layout needs."""
    shapes = {str(name): torch.Size(shape) for name, shape in state["layout"]}
    joined = torch.cat([state["vector"], state["statistics"]])
    if sum(shape.numel() for shape in shapes.values()) != len(joined):
        raise ValueError(f"its layout is not that of {len(joined)} numbers")
    return dict(zip(shapes, _split(joined, list(shapes.values())), strict=True))


def _listed(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters by name. The parameters of recurrent layers come first, all
    weights before all biases. cuDNN takes them as they lie only in this order, from the
    start of their storage. In any other order torch copies them in every call. So a
    second cell of a network would be copied."""
    cells = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    kinds = ("weight", "bias")
    first = [
        parameter
        for cell in cells
        for kind in kinds
        for name, parameter in cell.named_parameters()
        if name.startswith(kind)
    ]
    place = {id(parameter): index for index, parameter in enumerate(first)}
    return sorted(
        module.named_parameters(), key=lambda named: place.get(id(named[1]), len(place))
    )


def rearranged(saved: Any, order: Order | None) -> Any:
    """A saved state whose vectors (P,) are put into the order of now."""
    if order is None:
        return saved
    if isinstance(saved, Mapping):
        return {name: rearranged(part, order) for name, part in saved.items()}
    is_vector = isinstance(saved, Tensor) and saved.shape == order.entries.shape
    if is_vector:
        return saved[order.entries]
    return saved


def _moments(keys: list[str], shapes: list[torch.Size]) -> list[slice]:
    """Slices of consecutive buffers count, mean and m2, [count, mean (D), M2 (D)]."""
    sizes = [shape.numel() for shape in shapes]
    return [
        slice(sum(sizes[:first]), sum(sizes[: first + len(MOMENTS)]))
        for first in range(len(keys))
        if tuple(keys[first : first + len(MOMENTS)]) == MOMENTS
    ]


def _concatenate(parts: list[Tensor], device: torch.device) -> Tensor:
    if not parts:
        return torch.empty(0, device=device)
    return torch.cat([part.reshape(-1) for part in parts])


def _split(vector: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    sizes = [shape.numel() for shape in shapes]
    parts = torch.split(vector, sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
