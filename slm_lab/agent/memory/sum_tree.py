"""Drawing in proportion to priorities that change, many at a time."""

import numpy as np

from slm_lab.core.types import FloatArray, IntArray

MOST_WAITING = 1000
"""Calls of `set` after which the sums are brought up to date although nobody has asked."""


class SumTree:
    """A complete binary tree over `size` priorities, each node the sum of its two children.

    Drawing K of them takes log₂(size) vectorised steps, and so does bringing the sums up to date,
    which waits until they are asked for. Sums are float64; every parent is computed anew from its
    children, so that no rounding error piles up.
    """

    def __init__(self, size: int) -> None:
        self._levels = max(int(size - 1).bit_length(), 1)
        self._first_leaf = 1 << self._levels
        self._nodes = np.zeros(2 * self._first_leaf)
        self._leaves = self._nodes[self._first_leaf : self._first_leaf + size]
        self._waiting: list[IntArray] = []
        """Leaves whose parents are out of date."""

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        self._bring_up_to_date()
        return float(self._nodes[1])

    @property
    def priorities(self) -> FloatArray:
        """(size,), to read."""
        return self._leaves

    def set(self, index: IntArray, priority: FloatArray | float) -> None:
        """Gives the leaves at `index` (K,) new priorities; of one named twice the last counts."""
        self._leaves[index] = priority
        self._waiting.append(index)
        if len(self._waiting) == MOST_WAITING:
            self._bring_up_to_date()

    def rebuild(self, priorities: FloatArray) -> None:
        """Replaces all priorities (size,)."""
        self._leaves[:] = priorities
        self._waiting.clear()
        for level in range(self._levels - 1, -1, -1):
            self._sum_level(level)

    def find(self, mass: FloatArray) -> IntArray:
        """For each of `mass` (K,) in [0, total): the leaf at which the running sum passes it."""
        self._bring_up_to_date()
        node = self._descend(mass, careful=False)
        if np.count_nonzero(self._nodes.take(node)) < len(node):
            node = self._descend(mass, careful=True)
        return node - self._first_leaf

    def _descend(self, mass: FloatArray, careful: bool) -> IntArray:
        """The nodes of the leaves. Rounding may leave a rest as large as all there is to the left
        of nothing; `careful` never goes to where there is nothing, and takes longer."""
        nodes = self._nodes
        node = np.ones(len(mass), np.int64)
        rest = mass.copy()
        for _ in range(self._levels):
            node += node
            left = nodes.take(node)
            right = rest >= left
            if careful:
                right &= nodes.take(node + 1) > 0
            rest -= left * right
            node += right
        return node

    def _bring_up_to_date(self) -> None:
        if not self._waiting:
            return
        nodes = self._nodes
        node = np.concatenate(self._waiting) + self._first_leaf
        self._waiting.clear()
        for level in range(self._levels - 1, -1, -1):
            if 1 << level <= len(node):
                self._sum_level(level)
            else:  # a parent of two that changed is computed twice: cheaper than to look for it
                node = node >> 1
                left = node << 1
                nodes[node] = nodes.take(left) + nodes.take(left + 1)

    def _sum_level(self, level: int) -> None:
        """All nodes of a level; the root is level 0."""
        first, end = 1 << level, 2 << level
        children = self._nodes[2 * first : 2 * end]
        np.add(children[::2], children[1::2], out=self._nodes[first:end])
