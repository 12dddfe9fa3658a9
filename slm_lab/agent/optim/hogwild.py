"""Lock-free steps on parameters in shared memory: Hogwild! (arXiv:1106.5730), A3C
(arXiv:1602.01783).

Workers in several processes step on one vector, each with its own gradients, and none waits for
another: now and then an element is written over by someone who had read it earlier, which is rare
and does no harm.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.optim.flat import MOMENTS_WINDOW, FlatParameters
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.agent.optim.rule import misfit_of, refuse_misfit
from slm_lab.agent.optim.shared_memory import into_shared_memory
from slm_lab.agent.optim.sync import GradientSync
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.moments import merged
from slm_lab.core.types import StateDict


@dataclass(frozen=True)
class GlobalUnit:
    """What the workers have in common of one trained unit: all of it on the CPU and shared."""

    vector: Tensor
    """(P,) the parameters"""
    statistics: Tensor
    """(S,) the running statistics"""
    moments: Mapping[str, Tensor]
    """The optimizer's state, its count of steps included."""
    updates: Tensor
    """(W,) int64: the steps that each worker has taken; each writes its own only."""

    @classmethod
    def of(cls, optimizer: Optimizer, num_workers: int) -> "GlobalUnit":
        """As the unit of an agent stands. Raises LabError where there is no room to share it."""
        state = optimizer.shareable_state()
        return cls(
            into_shared_memory(optimizer.flat.vector),
            into_shared_memory(optimizer.flat.statistics),
            {name: into_shared_memory(tensor) for name, tensor in state.items()},
            into_shared_memory(torch.zeros(num_workers, dtype=torch.int64)),
        )

    def state_dict(self) -> StateDict:
        """As `Optimizer.state_dict`; `load_unit` puts it back."""
        flat = {"vector": self.vector.clone(), "statistics": self.statistics.clone()}
        return {"flat": flat, "rule": {name: m.clone() for name, m in self.moments.items()}}


class HogwildSync(GradientSync):
    """One worker's part in one unit; notes how stale its gradients are.

    The staleness of a gradient is the number of steps that others took between the moment in which
    the weights were read and the moment in which it is applied.
    """

    def __init__(self, unit: GlobalUnit, worker: int) -> None:
        self.unit = unit
        self.staleness: list[int] = []
        """Of each step since the list was last emptied."""
        self._updates = unit.updates.numpy()
        self._worker = worker
        self._seen = self._of_others()

    @abstractmethod
    def begin(self) -> None:
        """See `GradientSync`."""

    @abstractmethod
    def join(self, optimizer: Optimizer) -> None:
        """Makes the unit of a fresh agent one with the global one."""

    def before_step(self, flat: FlatParameters) -> None:
        """Changes nothing: gradients are not exchanged, they are applied."""

    def stepped(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The global vector, and this worker's gradient, on its way across if it must."""
        self.staleness.append(self._of_others() - self._seen)
        return self.unit.vector, flat.grad.to(self.unit.vector.device)

    def after_step(self, flat: FlatParameters) -> None:
        """Counts the step, and brings the worker up to date."""
        self._updates[self._worker] += 1
        self.refresh(flat)

    def refresh(self, flat: FlatParameters) -> None:
        """The weights are read now, or are the global ones anyway."""
        self._seen = self._of_others()
        self._pull(flat)

    @abstractmethod
    def _pull(self, flat: FlatParameters) -> None:
        """Brings `flat` up to date."""

    def _of_others(self) -> int:
        return int(self._updates.sum()) - int(self._updates[self._worker])


@final
class SharedSync(HogwildSync):
    """ "shared": the worker's network is the global one."""

    def join(self, optimizer: Optimizer) -> None:
        """See `HogwildSync.join`."""
        optimizer.flat.rebind(self.unit.vector, self.unit.statistics)
        optimizer.join(self, self.unit.moments)

    def begin(self) -> None:
        """Every forward pass reads the newest weights."""
        self._seen = self._of_others()

    def _pull(self, flat: FlatParameters) -> None:
        """There is nothing to pull."""


@final
class SyncedSync(HogwildSync):
    """ "synced": the worker has weights of its own, which it replaces after each step.

    They may live on another device. Running statistics are merged: moments become those of all that
    was seen, counts add up, averages that decay move a W-th of the way for each of W workers. Unit
    vectors stay each worker's own.
    """

    def __init__(self, unit: GlobalUnit, worker: int) -> None:
        super().__init__(unit, worker)
        self._pulled = unit.statistics.numpy().copy()

    def join(self, optimizer: Optimizer) -> None:
        """See `HogwildSync.join`."""
        optimizer.join(self, self.unit.moments)
        optimizer.flat.vector.copy_(self.unit.vector)
        optimizer.flat.statistics.copy_(self.unit.statistics)

    def begin(self) -> None:
        """The weights are those of the last pull."""

    def _pull(self, flat: FlatParameters) -> None:
        flat.vector.copy_(self.unit.vector)
        if len(self._pulled):
            self._exchange_statistics(flat)

    def _exchange_statistics(self, flat: FlatParameters) -> None:
        total = self.unit.statistics.numpy()
        own = flat.statistics.cpu().numpy()
        if not np.isfinite(own).all():
            raise NonFiniteLossError("running statistics of a network are not finite")
        share = 1 / len(self._updates)
        now = merged(total, self._pulled, own, flat.moments, share, MOMENTS_WINDOW)
        counted = flat.counters
        now[counted] = total[counted] + own[counted] - self._pulled[counted]
        now[flat.directions] = own[flat.directions]
        self._pulled = now
        total[:] = self._pulled
        flat.statistics.copy_(self.unit.statistics)


def load_unit(unit: GlobalUnit, saved: StateDict) -> None:
    """Puts what `Optimizer.state_dict` saved back into shared memory. Raises CheckpointError for
    the moments of another update rule."""
    refuse_misfit(misfit_of(saved["rule"], unit.moments))
    unit.vector.copy_(saved["flat"]["vector"])
    unit.statistics.copy_(saved["flat"]["statistics"])
    for name, tensor in unit.moments.items():
        tensor.copy_(saved["rule"][name])
