"""Sampling in proportion to priorities that change, many at a time."""

import numpy as np

from slm_lab.core.types import FloatArray, IntArray

MAX_PENDING = 1000
"""Calls of `set` after which the sums are updated even if nothing reads them."""


class SumTree:
    """A complete binary tree over `size` priorities, each node the sum of its two
    children. Sampling K of them takes log₂(size) vectorised steps. So does updating the
    sums, which waits until they are read. Sums are float64, and every parent is
    recomputed from its children, so that no rounding error accumulates."""

    def __init__(self, size: int) -> None:
        self._levels = max(int(size - 1).bit_length(), 1)
        self._first_leaf = 1 << self._levels
        self._nodes = np.zeros(2 * self._first_leaf)
        self.priorities: FloatArray = self._nodes[
            self._first_leaf : self._first_leaf + size
        ]
        """(size,), to read."""
        self._pending: list[IntArray] = []
        """Leaves whose parents are out of date."""

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        self._update_sums()
        return float(self._nodes[1])

    def set(self, index: IntArray, priority: FloatArray | float) -> None:
        """Sets the priorities at `index` (K,); for a repeated index the last counts."""
        self.priorities[index] = priority
        self._pending.append(index)
        if len(self._pending) == MAX_PENDING:
            self._update_sums()

    def rebuild(self, priorities: FloatArray) -> None:
        """Replaces all priorities (size,)."""
        self.priorities[:] = priorities
        self._pending.clear()
        for level in range(self._levels - 1, -1, -1):
            self._sum_level(level)

    def find(self, mass: FloatArray) -> IntArray:
        """For each of `mass` (K,) in [0, total): the leaf at which the running sum
        exceeds it."""
        self._update_sums()
        node = self._descend(mass, skip_empty=False)
        if np.count_nonzero(self._nodes.take(node)) < len(node):
            node = self._descend(mass, skip_empty=True)
        return node - self._first_leaf

    def _descend(self, mass: FloatArray, skip_empty: bool) -> IntArray:
        """The nodes of the leaves. By rounding, a remainder may equal the whole sum to
        the left of an empty node. `skip_empty` never descends into an empty node, and
        takes longer."""
        nodes = self._nodes
        node = np.ones(len(mass), np.int64)
        rest = mass.copy()
        for _ in range(self._levels):
            node += node
            left = nodes.take(node)
            right = rest >= left
            if skip_empty:
                right &= nodes.take(node + 1) > 0
            rest -= left * right
            node += right
        return node

    def _update_sums(self) -> None:
        if not self._pending:
            return
        nodes = self._nodes
        node = np.concatenate(self._pending) + self._first_leaf
        self._pending.clear()
        for level in range(self._levels - 1, -1, -1):
            if 1 << level <= len(node):
                self._sum_level(level)
            # a parent of two changed nodes is computed twice: cheaper than a search
            else:
                node = node >> 1
                left = node << 1
                nodes[node] = nodes.take(left) + nodes.take(left + 1)

    def _sum_level(self, level: int) -> None:
        """All nodes of a level; the root is level 0."""
        first, end = 1 << level, 2 << level
        children = self._nodes[2 * first : 2 * end]
        np.add(children[::2], children[1::2], out=self._nodes[first:end])
