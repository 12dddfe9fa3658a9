"""Which transitions of a ring are drawn, and how much each counts."""

from abc import ABC, abstractmethod
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.memory.sum_tree import SumTree
from slm_lab.agent.schedule import Schedule
from slm_lab.core.types import FloatArray, IntArray, StateDict

LEAST_PRIORITY = 1e-12
"""No transition has less, whatever its error and ε, so that each can be drawn again."""


class Ring(Protocol):
    """What a drawing has to know of a ring: places are numbers from 0 to `size` − 1."""

    size: int

    @property
    def num_stored(self) -> int:
        """How many can be drawn."""

    @property
    def newest(self) -> IntArray:
        """The places (K,) of what was added last."""

    @property
    def forgotten(self) -> IntArray:
        """The places (K,) that cannot be drawn any more since then."""

    def place(self, age: IntArray) -> IntArray:
        """The places (B,) of those numbered from the oldest, 0, to `num_stored` − 1."""


class Drawing(ABC):
    """A way of drawing places from a ring, with a generator of its own."""

    @abstractmethod
    def added(self) -> None:
        """Takes note of the step that the ring has just been given."""

    @abstractmethod
    def draw(self, size: int, frame: int) -> IntArray:
        """`size` places, with replacement, at the trial's clock `frame`."""

    @abstractmethod
    def weights(self, places: IntArray, frame: int) -> Tensor:
        """(B,) importance of samples at `places`, the largest 1."""

    @abstractmethod
    def report_errors(self, places: IntArray, error: FloatArray) -> None:
        """Takes note of how wrong the learner was about the samples at `places` (B,)."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """The generator, and what the drawing depends on."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restores it, once the ring has been restored."""


@final
class Uniform(Drawing):
    """Every transition is as likely as every other."""

    def __init__(self, ring: Ring, seed: int) -> None:
        self._ring = ring
        self._generator = np.random.default_rng(seed)
        self._ones = torch.ones(0)

    def added(self) -> None:
        """Changes nothing."""

    def draw(self, size: int, frame: int) -> IntArray:
        """See `Drawing.draw`."""
        return self._ring.place(self._generator.integers(0, self._ring.num_stored, size))

    def weights(self, places: IntArray, frame: int) -> Tensor:
        """Ones."""
        if len(self._ones) != len(places):
            self._ones = torch.ones(len(places))
        return self._ones

    def report_errors(self, places: IntArray, error: FloatArray) -> None:
        """Changes nothing."""

    def state_dict(self) -> StateDict:
        """The generator."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it."""
        self._generator.bit_generator.state = state["generator"]


@final
class Proportional(Drawing):
    """In proportion to (|error| + ε)^α: prioritised replay, arXiv:1511.05952, section 3.3.

    New transitions enter with the greatest priority there has been. The mass is cut into equal
    strata with one draw from each. With `beta` the bias is corrected by importance weights.
    """

    def __init__(
        self, ring: Ring, seed: int, alpha: float, epsilon: float, beta: Schedule | None
    ) -> None:
        self._ring = ring
        self._generator = np.random.default_rng(seed)
        self._alpha = alpha
        self._epsilon = epsilon
        self._beta = beta
        self._tree = SumTree(ring.size)
        self._greatest = 1.0

    def added(self) -> None:
        """The newest enter with the greatest priority; those written over cannot be drawn."""
        self._tree.set(self._ring.forgotten, 0.0)
        self._tree.set(self._ring.newest, self._greatest)

    def draw(self, size: int, frame: int) -> IntArray:
        """See `Drawing.draw`; stratum k is [k/size, (k + 1)/size) of the mass."""
        mass = (np.arange(size) + self._generator.random(size)) * (self._tree.total / size)
        return self._tree.find(mass)

    def weights(self, places: IntArray, frame: int) -> Tensor:
        """(1 / (n P(i)))^β, divided by the largest of the batch."""
        if self._beta is None:
            return torch.ones(len(places))
        priority = self._tree.priorities[places]
        weight = (priority / priority.min()) ** -self._beta.at(frame)
        return torch.from_numpy(weight.astype(np.float32))

    def report_errors(self, places: IntArray, error: FloatArray) -> None:
        """p ← (|error| + ε)^α."""
        priority = (np.abs(error).astype(np.float64) + self._epsilon) ** self._alpha
        priority = np.maximum(priority, LEAST_PRIORITY)
        self._greatest = max(self._greatest, float(priority.max()))
        self._tree.set(places, priority)

    def state_dict(self) -> StateDict:
        """Generator and priorities."""
        return {
            "generator": self._generator.bit_generator.state,
            "greatest": self._greatest,
            "priorities": self._tree.priorities.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self._generator.bit_generator.state = state["generator"]
        self._greatest = float(state["greatest"])
        self._tree.rebuild(state["priorities"])
