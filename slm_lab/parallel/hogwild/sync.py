"""Lock-free steps on parameters in shared memory: Hogwild! (arXiv:1106.5730), A3C
(arXiv:1602.01783).

Workers in several processes apply their gradients to one vector without waiting for
each other. That a worker overwrites an element which another has just updated is rare
and harmless."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.optim.flat import MOMENTS_WINDOW, FlatParameters, Layout, rearranged
from slm_lab.agent.optim.optimizer import GradientSync, Optimizer
from slm_lab.agent.optim.rule import check_same_rule
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.moments import merged
from slm_lab.core.types import StateDict
from slm_lab.parallel.shared_memory import into_shared_memory
from slm_lab.session.pace import GRADIENT, STEP, Pace, network_kind


@dataclass(frozen=True)
class SharedTrainState:
    """A network's parameters and optimizer state that all workers share, in memory on
    the CPU."""

    vector: Tensor
    """(P,) the parameters"""
    statistics: Tensor
    """(S,) the running statistics"""
    moments: Mapping[str, Tensor]
    """The optimizer's state, including its step count."""
    layout: Layout
    updates: Tensor
    """(W,) int64: the steps that each worker has taken; each writes only its own."""

    @classmethod
    def of(cls, optimizer: Optimizer, num_workers: int) -> "SharedTrainState":
        """A shared copy of `optimizer`'s state. Raises LabError if shared memory has no
        room."""
        state = optimizer.shareable_state()
        moments = {name: into_shared_memory(tensor) for name, tensor in state.items()}
        return cls(
            vector=into_shared_memory(optimizer.flat.vector),
            statistics=into_shared_memory(optimizer.flat.statistics),
            moments=moments,
            layout=optimizer.flat.layout,
            updates=into_shared_memory(torch.zeros(num_workers, dtype=torch.int64)),
        )

    def state_dict(self) -> StateDict:
        """The state in the form of `Optimizer.state_dict`."""
        flat = {
            "layout": self.layout.saved,
            "vector": self.vector.clone(),
            "statistics": self.statistics.clone(),
        }
        return {
            "flat": flat,
            "rule": {name: m.clone() for name, m in self.moments.items()},
        }

    def load(self, saved: StateDict) -> None:
        """Restores an `Optimizer.state_dict`. Raises CheckpointError for another update
        rule."""
        check_same_rule(saved["rule"], self.moments)
        saved = rearranged(saved, self.layout.order_of(saved["flat"].get("layout")))
        self.vector.copy_(saved["flat"]["vector"])
        self.statistics.copy_(saved["flat"]["statistics"])
        for name, tensor in self.moments.items():
            tensor.copy_(saved["rule"][name])


class HogwildSync(GradientSync):
    """One worker's synchronisation of one network; records how stale its gradients are.
    A gradient's staleness is the number of steps by other workers between reading the
    weights and applying the gradient."""

    def __init__(
        self,
        shared: SharedTrainState,
        worker: int,
        network: str = "net",
        pace: Pace | None = None,
    ) -> None:
        self.shared = shared
        self._pace = pace or Pace()
        self._gradient = network_kind(GRADIENT, network)
        self._step = network_kind(STEP, network)
        self.staleness: list[int] = []
        """The staleness of each step since the list was last cleared."""
        self._updates = shared.updates.numpy()
        self._worker = worker
        self._seen = self._updates_of_others()

    @abstractmethod
    def join(self, optimizer: Optimizer) -> None:
        """Connects a fresh agent's network to the global one."""

    @override
    def before_step(self, flat: FlatParameters) -> None:
        self._pace.passed(self._gradient)

    @override
    def operands(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The global vector, and this worker's gradient on the same device."""
        self.staleness.append(self._updates_of_others() - self._seen)
        return self.shared.vector, flat.grad.to(self.shared.vector.device)

    @override
    def after_step(self, flat: FlatParameters) -> None:
        self._seen = self._updates_of_others()
        self._pull(flat)
        # who sees it finds this worker's statistics, too
        self._updates[self._worker] += 1
        self._pace.passed(self._step)

    def refresh(self, flat: FlatParameters) -> None:
        """Reads the global weights if another worker has changed them."""
        others = self._updates_of_others()
        if others != self._seen:
            self._seen = others
            self._pull(flat)

    def adopt(self, flat: FlatParameters) -> None:
        """Makes the worker's network equal to the global one, whatever it was. By
        default it is that one."""

    def publish(self, flat: FlatParameters) -> None:
        """Makes the global network equal to the worker's, whatever it was."""

    def _pull(self, flat: FlatParameters) -> None:
        """Copies the global state into `flat`."""

    def _updates_of_others(self) -> int:
        return int(self._updates.sum()) - int(self._updates[self._worker])


@final
class InPlaceSync(HogwildSync):
    """The worker's network is the global one: "shared" on the CPU."""

    @override
    def join(self, optimizer: Optimizer) -> None:
        optimizer.flat.rebind(self.shared.vector, self.shared.statistics)
        optimizer.join(self, self.shared.moments)

    @override
    def begin(self) -> None:
        self._seen = self._updates_of_others()


@final
class CopySync(HogwildSync):
    """The worker has its own copy of the weights, which it replaces after each step:
    "synced", and "shared" on another device. Running statistics are merged. Moments
    cover all workers' samples; counts add up; decaying averages move 1/W of the way for
    each of W workers. Unit vectors remain local to each worker."""

    @override
    def join(self, optimizer: Optimizer) -> None:
        optimizer.join(self, self.shared.moments)
        self.adopt(optimizer.flat)

    @override
    def adopt(self, flat: FlatParameters) -> None:
        self._pulled = self.shared.statistics.numpy().copy()
        flat.vector.copy_(self.shared.vector)
        flat.statistics.copy_(self.shared.statistics)

    @override
    def publish(self, flat: FlatParameters) -> None:
        self.shared.vector.copy_(flat.vector)
        self.shared.statistics.copy_(flat.statistics)
        self._pulled = self.shared.statistics.numpy().copy()

    @override
    def _pull(self, flat: FlatParameters) -> None:
        flat.vector.copy_(self.shared.vector)
        if len(self._pulled):
            self._exchange_statistics(flat)

    def _exchange_statistics(self, flat: FlatParameters) -> None:
        total = self.shared.statistics.numpy()
        local = flat.statistics.cpu().numpy()
        if not np.isfinite(local).all():
            raise NonFiniteLossError("running statistics of a network are not finite")
        share = 1 / len(self._updates)
        now = merged(
            total=total,
            before=self._pulled,
            after=local,
            moments=flat.moments,
            share=share,
            window=MOMENTS_WINDOW,
        )
        counted = flat.counters
        now[counted] = total[counted] + local[counted] - self._pulled[counted]
        now[flat.directions] = local[flat.directions]
        self._pulled = now
        total[:] = self._pulled
        flat.statistics.copy_(self.shared.statistics)
