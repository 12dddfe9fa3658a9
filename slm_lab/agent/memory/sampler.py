"""Which transitions of a ring are drawn, and how much each counts."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.memory.sum_tree import SumTree
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.agent.schedule import Schedule
from slm_lab.core.types import IntArray, StateDict

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


NOTHING = np.arange(0)


class SampledPlaces(NamedTuple):
    """B places of a ring."""

    places: IntArray
    """(B,), those that were asked for last"""
    weight: Tensor | None
    """(B,) importance of the sample at each place, the largest 1; None where all count alike"""


class StepRing(Ring, Protocol):
    """One that is added to vector step by vector step; the places of a step follow each other."""

    num_envs: int


class Sampler(ABC):
    """A way of drawing places from a ring, with a generator of its own.

    One that draws alike whatever is added and however wrong the learner was has only to `sample`.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def added(self) -> None:
        """Takes note of the step that the ring has just been given."""

    @abstractmethod
    def sample(self, size: int, frame: int, given: IntArray = NOTHING) -> SampledPlaces:
        """`size` places at the trial's clock `frame`: drawn with replacement, but for those `given`
        (K,), which come last."""

    def update_priorities(self, places: Tensor, error: Tensor) -> None:
        """Takes note of how wrong the learner was about the samples at `places` (B,)."""

    def state_dict(self) -> StateDict:
        """The generator, and what the drawing depends on."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it, once the ring has been restored."""
        self._generator.bit_generator.state = state["generator"]


@final
class UniformSampler(Sampler):
    """Every transition is as likely as every other."""

    def __init__(self, ring: Ring, seed: int) -> None:
        super().__init__(seed)
        self._ring = ring

    @override
    def sample(self, size: int, frame: int, given: IntArray = NOTHING) -> SampledPlaces:
        """All count alike."""
        ages = self._generator.integers(0, self._ring.num_stored, size - len(given))
        return SampledPlaces(_joined(self._ring.place(ages), given), None)


@final
class SequenceSampler(Sampler):
    """Stretches of one environment that follow each other, each as likely as every other.

    They may reach over the end of an episode. The first steps of each only bring the recurrent
    state up to date: they weigh nothing, and the net takes no gradient through them (burn-in,
    Kapturowski et al., "R2D2", 2019).
    """

    def __init__(self, ring: StepRing, seed: int, recurrent: RecurrentLayout) -> None:
        super().__init__(seed)
        self._ring = ring
        self._length = recurrent.stretch
        self._steps = np.arange(self._length) * ring.num_envs
        self._weight = torch.full(
            (self._length,), self._length / (self._length - recurrent.burn_in)
        )
        self._weight[: recurrent.burn_in] = 0.0

    @override
    def sample(self, size: int, frame: int, given: IntArray = NOTHING) -> SampledPlaces:
        """: `size` / L sequences, one after the other. None can be given."""
        assert not len(given), "single steps are no sequences"
        ring, count = self._ring, size // self._length
        last_begin = ring.num_stored - (self._length - 1) * ring.num_envs
        begin = self._generator.integers(0, last_begin, count)
        ages = (begin[:, None] + self._steps).ravel()
        return SampledPlaces(ring.place(ages), self._weight.repeat(count))


@final
class PrioritizedSampler(Sampler):
    """In proportion to (|error| + ε)^α: prioritised replay, arXiv:1511.05952, section 3.3.

    New transitions enter with the greatest priority there has been. The mass is cut into equal
    strata with one draw from each. With `beta` the bias is corrected by importance weights.
    """

    def __init__(
        self, ring: Ring, seed: int, alpha: float, epsilon: float, beta: Schedule | None
    ) -> None:
        super().__init__(seed)
        self._ring = ring
        self._alpha = alpha
        self._epsilon = epsilon
        self._beta = beta
        self._tree = SumTree(ring.size)
        self._greatest = 1.0

    @override
    def added(self) -> None:
        """The newest enter with the greatest priority; those written over cannot be drawn."""
        self._tree.set(self._ring.forgotten, 0.0)
        self._tree.set(self._ring.newest, self._greatest)

    @override
    def sample(self, size: int, frame: int, given: IntArray = NOTHING) -> SampledPlaces:
        """Stratum k of n is [k/n, (k + 1)/n) of the mass.

        A weight is (1 / (N P(i)))^β, divided by the largest of the batch. The places given were not
        drawn by their priority, so there is no bias of theirs to undo: they count as a uniform draw
        would, P(i) = 1/N, which is what they weigh in a memory that is drawn from uniformly.
        """
        count = size - len(given)
        total = self._tree.total
        mass = (np.arange(count) + self._generator.random(count)) * (total / max(count, 1))
        places = _joined(self._tree.find(mass), given)
        if self._beta is None:
            return SampledPlaces(places, None)
        priority = self._tree.priorities[places]
        priority[count:] = total / self._ring.num_stored
        weight = (priority / priority.min()) ** -self._beta.at(frame)
        return SampledPlaces(places, torch.from_numpy(weight.astype(np.float32)))

    @override
    def update_priorities(self, places: Tensor, error: Tensor) -> None:
        """p ← (|error| + ε)^α."""
        priority = (np.abs(error.numpy()).astype(np.float64) + self._epsilon) ** self._alpha
        priority = np.maximum(priority, LEAST_PRIORITY)
        self._greatest = max(self._greatest, float(priority.max()))
        self._tree.set(places.numpy(), priority)

    @override
    def state_dict(self) -> StateDict:
        """Generator and priorities."""
        return {
            **super().state_dict(),
            "greatest": self._greatest,
            "priorities": self._tree.priorities.copy(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        super().load_state_dict(state)
        self._greatest = float(state["greatest"])
        self._tree.rebuild(state["priorities"])


def _joined(drawn: IntArray, given: IntArray) -> IntArray:
    return np.concatenate([drawn, given]) if len(given) else drawn
