"""Drawing in proportion to priorities that change, many at a time."""

import numpy as np

from slm_lab.core.types import FloatArray, IntArray


class SumTree:
    """A complete binary tree over `size` priorities, each node the sum of its two children.

    Setting and drawing K of them take log₂(size) vectorised steps. Sums are float64; every parent
    is computed anew from its children, so that no rounding error piles up.
    """

    def __init__(self, size: int) -> None:
        self._levels = max(int(size - 1).bit_length(), 1)
        self._first_leaf = 1 << self._levels
        self._nodes = np.zeros(2 * self._first_leaf)
        self._leaves = self._nodes[self._first_leaf : self._first_leaf + size]

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._nodes[1])

    @property
    def priorities(self) -> FloatArray:
        """(size,), to read."""
        return self._leaves

    def set(self, index: IntArray, priority: FloatArray | float) -> None:
        """Gives the leaves at `index` (K,) new priorities; of one named twice the last counts."""
        self._leaves[index] = priority
        node = np.unique((index + self._first_leaf) >> 1)
        while node[0] > 0:
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]
            if node[0] == 1:
                return
            node = np.unique(node >> 1)

    def rebuild(self, priorities: FloatArray) -> None:
        """Replaces all priorities (size,)."""
        self._leaves[:] = priorities
        for level in range(self._levels, 0, -1):
            first, end = 1 << (level - 1), 1 << level
            children = self._nodes[2 * first : 2 * end]
            self._nodes[first:end] = children[::2] + children[1::2]

    def find(self, mass: FloatArray) -> IntArray:
        """For each of `mass` (K,) in [0, total): the leaf at which the running sum passes it."""
        node = np.ones(len(mass), np.int64)
        rest = mass.copy()
        for _ in range(self._levels):
            node *= 2
            left = self._nodes[node]
            # Rounding may leave a rest that is as large as everything to the left of nothing.
            right = (rest >= left) & (self._nodes[node + 1] > 0)
            rest -= left * right
            node += right
        return node - self._first_leaf
