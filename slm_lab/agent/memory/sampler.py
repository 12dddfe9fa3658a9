"""Samplers of the transitions of a ring, with weights."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.memory.transition_ring import TransitionRing
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.schedule import Schedule
from slm_lab.core.state import SavedFields
from slm_lab.core.types import BoolArray, FloatArray, IntArray

MIN_PRIORITY = 1e-12
"""The least priority, whatever error and ε are, so that every transition can be sampled
again."""


class Ring(Protocol):
    """A ring as a sampler sees it; indices are from 0 to `size` − 1."""

    size: int

    @property
    def num_stored(self) -> int:
        """The number of transitions that can be sampled."""

    @property
    def num_present(self) -> int:
        """The number of those that are steps of agents."""

    def is_absent(self, indices: IntArray) -> BoolArray | None:
        """(B,) whether there is no step of an agent at these indices, so that they may
        not be sampled. None if all are steps."""

    @property
    def newest(self) -> IntArray:
        """The indices (K,) of what was added last."""

    @property
    def overwritten(self) -> IntArray:
        """The indices (K,) that can no longer be sampled since then."""

    def indices(self, age: IntArray) -> IntArray:
        """The indices (B,) of transitions numbered by age: 0, the oldest, to
        `num_stored` − 1."""


NOTHING = np.arange(0)


class SampledIndices(NamedTuple):
    """B indices of a ring."""

    indices: IntArray
    """(B,), the given ones last"""
    weight: Tensor | None
    """(B,) importance of each sample, the largest 1; None where all are equal"""


class Sampler(SavedFields):
    """Samples indices from a ring, with its own generator. A sampler that depends
    neither on additions nor on errors implements only `sample`."""

    saved: ClassVar = {"generator": "_generator"}

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def added(self) -> None:
        """Updates the sampler after an addition to the ring."""

    @abstractmethod
    def sample(
        self, size: int, frame: int, chosen: IntArray = NOTHING
    ) -> SampledIndices:
        """`size` indices at the trial's clock `frame`, sampled with replacement; those
        `chosen` (K,) are last."""

    def update_priorities(self, indices: Tensor, error: Tensor) -> None:
        """Records how wrong the learner was about the samples at `indices` (B,)."""


@final
class UniformSampler(Sampler):
    """Every transition is equally likely."""

    def __init__(self, ring: Ring, seed: int) -> None:
        super().__init__(seed)
        self._ring = ring

    @override
    def sample(
        self, size: int, frame: int, chosen: IntArray = NOTHING
    ) -> SampledIndices:
        drawn = self._drawn(size - len(chosen))
        while (absent := self._ring.is_absent(drawn)) is not None and absent.any():
            drawn[absent] = self._drawn(int(np.count_nonzero(absent)))
        return SampledIndices(_joined(drawn, chosen), None)

    def _drawn(self, size: int) -> IntArray:
        ages = self._generator.integers(0, self._ring.num_stored, size)
        return self._ring.indices(ages)


@final
class SequenceSampler(Sampler):
    """Sequences of consecutive steps of one environment, each equally likely. They may
    continue over the end of an episode. They may also continue over steps where the
    agent was absent, whose weight is zero. The first steps of each only update the
    recurrent state (burn-in, Kapturowski et al., "R2D2", 2019). Their weight is zero,
    and the net takes no gradient through them."""

    def __init__(
        self, ring: TransitionRing, seed: int, recurrent: RecurrentLayout
    ) -> None:
        super().__init__(seed)
        self._ring = ring
        self._length = recurrent.seq_len
        self._steps = np.arange(self._length) * ring.num_envs
        learned = self._length - recurrent.burn_in
        self._weight = torch.full((self._length,), self._length / learned)
        self._weight[: recurrent.burn_in] = 0.0

    @override
    def sample(
        self, size: int, frame: int, chosen: IntArray = NOTHING
    ) -> SampledIndices:
        """`size` / L sequences, one after the other. None can be given."""
        assert not len(chosen), "single steps are no sequences"
        ring = self._ring
        count = size // self._length
        last_begin = ring.num_stored - (self._length - 1) * ring.num_envs
        start = self._generator.integers(0, last_begin, count)
        ages = (start[:, None] + self._steps).ravel()
        indices = ring.indices(ages)
        weight = self._weight.repeat(count)
        absent = ring.is_absent(indices)
        if absent is not None:
            weight[torch.from_numpy(absent)] = 0.0
        return SampledIndices(indices, weight)


class Priority(NamedTuple):
    """The exponents by which errors become priorities and weights."""

    alpha: Schedule = Schedule(0.6)
    """Exponent of the priorities: 0 samples uniformly, 1 in proportion to the error"""
    epsilon: float = 1e-4
    """Added to every error"""
    beta: Schedule | None = None
    """Exponent of the importance weights; None: no weights"""


@final
class PrioritizedSampler(Sampler):
    """Samples in proportion to (|error| + ε)^α: prioritised replay, arXiv:1511.05952,
    section 3.3. New transitions get the greatest priority so far. The mass is cut into
    equal strata with one sample from each. With `beta` importance weights correct the
    bias."""

    saved: ClassVar = {
        **Sampler.saved,
        "greatest": "_max_priority",
        "priorities": "_tree.priorities",
    }

    def __init__(self, ring: Ring, seed: int, priority: Priority) -> None:
        super().__init__(seed)
        self._ring = ring
        self._alpha = priority.alpha
        self._alpha_now = priority.alpha.at(0)
        self._epsilon = priority.epsilon
        self._beta = priority.beta
        self._tree = SumTree(ring.size)
        self._max_priority = 1.0

    @override
    def added(self) -> None:
        self._tree.set(self._ring.overwritten, 0.0)
        self._tree.set(self._ring.newest, self._max_priority)

    @override
    def sample(
        self, size: int, frame: int, chosen: IntArray = NOTHING
    ) -> SampledIndices:
        """Stratum k of n is [k/n, (k + 1)/n) of the mass. A weight is (1 / (N P(i)))^β,
        divided by the largest of the batch. Given indices were not sampled by priority,
        so they have no bias to undo. They count as uniform samples, P(i) = 1/N, which
        is their weight in a uniform memory."""
        self._alpha_now = self._alpha.at(frame)
        count = size - len(chosen)
        total = self._tree.total
        mass = (np.arange(count) + self._generator.random(count)) * (
            total / max(count, 1)
        )
        indices = _joined(self._tree.find(mass), chosen)
        if self._beta is None:
            return SampledIndices(indices, None)
        priority = self._tree.priorities[indices]
        if count < size:  # the number of steps takes a pass over the ring
            priority[count:] = total / self._ring.num_present
        weight = (priority / priority.min()) ** -self._beta.at(frame)
        return SampledIndices(indices, torch.from_numpy(weight.astype(np.float32)))

    @override
    def update_priorities(self, indices: Tensor, error: Tensor) -> None:
        """p ← (|error| + ε)^α, with α at the clock of the last sample."""
        priority = (
            np.abs(error.cpu().numpy()).astype(np.float64) + self._epsilon
        ) ** self._alpha_now
        priority = np.maximum(priority, MIN_PRIORITY)
        self._max_priority = max(self._max_priority, float(priority.max()))
        self._tree.set(indices.numpy(), priority)

    @override
    def after_load(self) -> None:
        self._tree.rebuild()


def _joined(drawn: IntArray, chosen: IntArray) -> IntArray:
    if len(chosen):
        return np.concatenate([drawn, chosen])
    return drawn


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
        """(size,) the priorities, only to be read, or replaced before `rebuild`."""
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

    def rebuild(self) -> None:
        """Updates all sums, after `priorities` have been replaced."""
        self._pending.clear()
        for level in range(self._levels - 1, -1, -1):
            self._sum_level(level)

    def find(self, mass: FloatArray) -> IntArray:
        """The leaf at which the running sum exceeds each of `mass` (K,), in [0,
        total)."""
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
        first = 1 << level
        end = 2 << level
        children = self._nodes[2 * first : 2 * end]
        np.add(children[::2], children[1::2], out=self._nodes[first:end])
