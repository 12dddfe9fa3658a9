"""Hogwild!: a Trial's Sessions as lock-free workers on global parameters in shared
memory."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.agent import Agent
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.core.moments import merged, require_finite
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.hogwild.pauses import WorkerPauses
from slm_lab.parallel.hogwild.sync import (
    HogwildSync,
    SharedSync,
    SharedTrainState,
    SyncedSync,
)
from slm_lab.parallel.shared_memory import into_shared_memory
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Ballot, Blueprint, Strategy

HogwildMode = Literal["shared", "synced"]


@dataclass(frozen=True)
class GlobalState:
    """The state that all workers share, in shared memory on the CPU."""

    mode: HogwildMode
    networks: Mapping[str, SharedTrainState]
    statistics: Tensor
    """The environments' running statistics, float64."""

    @classmethod
    def of(
        cls, mode: HogwildMode, agent: Agent, env: VectorEnv, num_workers: int
    ) -> "GlobalState":
        """A shared copy of a fresh agent's state and its environments' statistics.
        Raises LabError if shared memory has no room."""
        optimizers = agent.learner.train_state.optimizers.items()
        networks = {
            name: SharedTrainState.of(optimizer, num_workers)
            for name, optimizer in optimizers
        }
        return cls(mode, networks, into_shared_memory(torch.from_numpy(env.statistics)))

    def load(self, saved: StateDict) -> None:
        """Restores the shared state from a worker's checkpoint."""
        for name, shared in self.networks.items():
            shared.load(saved["agent"]["learner"]["train_state"][name])
            shared.updates[0] = saved["strategy"]["updates"][name]
        self.statistics.copy_(torch.from_numpy(saved["env"]["statistics"]))

    def state_dict(self) -> StateDict:
        """The state that `load` restores."""
        saved = {name: shared.state_dict() for name, shared in self.networks.items()}
        return {
            "agent": {"learner": {"train_state": saved}},
            "env": {"statistics": self.statistics.numpy().copy()},
            "strategy": {"updates": self.updates},
        }

    @property
    def updates(self) -> dict[str, int]:
        """The gradient steps of all workers together, by network."""
        return {
            name: int(shared.updates.sum()) for name, shared in self.networks.items()
        }

    @staticmethod
    def age(saved: StateDict) -> tuple[int, int]:
        """Frames and gradient steps of all workers: a later checkpoint has a greater
        pair. A worker's clock ticks before its training event, so frames alone may
        tie."""
        return sum(saved["frames"]), sum(saved["strategy"]["updates"].values())

    @staticmethod
    def is_in(saved: StateDict) -> bool:
        """Whether a worker's checkpoint holds all shared state: one of each joint set
        does."""
        optimizers = saved["agent"]["learner"]["train_state"]
        return all(optimizer["rule"] is not None for optimizer in optimizers.values())


def is_on_cpu(optimizer: Optimizer) -> bool:
    """Whether the network can use the global parameters directly: they are on the
    CPU."""
    return optimizer.flat.vector.is_cpu


@final
class HogwildStrategy(Strategy, Ballot):
    """One of W workers. They do not vote; each sees when another has reached the target
    return."""

    columns = ("staleness_p50", "staleness_p95", "updates_per_s")

    def __init__(self, state: GlobalState, board: StatusBoard, session: int) -> None:
        self._pauses = WorkerPauses(board, session, self._pull)
        super().__init__(
            Blueprint(board.clock_slots, session, self.columns),
            self._pauses,
            self,
            checkpoint=self._pauses,
        )
        self._board = board
        self._session = session
        self._state = state
        self._total = state.statistics.numpy()
        self._refreshed = time.perf_counter()

    @property
    @override
    def solved(self) -> bool:
        return bool(self._board.solved.any())

    @override
    def declare_solved(self) -> None:
        self._board.solved[self._session] = 1

    @override
    def join(self, agent: Agent, env: VectorEnv) -> None:
        self._agent = agent
        self._env = env
        self._syncs: dict[str, HogwildSync] = {}
        for name, optimizer in agent.learner.train_state.optimizers.items():
            in_place = self._state.mode == "shared" and is_on_cpu(optimizer)
            kind = SharedSync if in_place else SyncedSync
            sync = kind(self._state.networks[name], self._session)
            sync.join(optimizer)
            self._syncs[name] = sync
        # "shared" off the CPU: a replica that is refreshed before every use.
        self._replicas = self._state.mode == "shared" and any(
            isinstance(sync, SyncedSync) for sync in self._syncs.values()
        )
        self._opt_step = agent.learner.opt_step
        self._pulled = self._total.copy()
        env.statistics[:] = self._pulled

    @override
    def refresh(self) -> None:
        self._refreshed = time.perf_counter()
        if self._replicas:
            self._pull()

    def _pull(self) -> None:
        optimizers = self._agent.learner.train_state.optimizers
        with torch.no_grad():
            for name, sync in self._syncs.items():
                sync.refresh(optimizers[name].flat)

    @override
    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
        """Merges the environments' statistics into the shared ones. Raises
        NonFiniteLossError if they are not finite, which would spoil the shared ones."""
        self._pauses.event_seconds = time.perf_counter() - self._refreshed
        if len(self._pulled):
            statistics = self._env.statistics
            require_finite(statistics)
            self._pulled = merged(
                self._total, self._pulled, statistics, self._env.moments
            )
            self._total[:] = self._pulled
            statistics[:] = self._pulled
        return report

    @override
    def report(self, seconds: float) -> dict[str, float]:
        staleness = [count for sync in self._syncs.values() for count in sync.staleness]
        for sync in self._syncs.values():
            sync.staleness.clear()
        steps = self._agent.learner.opt_step
        taken = steps - self._opt_step
        self._opt_step = steps
        report = {"updates_per_s": taken / seconds} if seconds > 0 else {}
        if staleness:
            median, most = np.percentile(staleness, [50, 95])
            report |= {"staleness_p50": float(median), "staleness_p95": float(most)}
        return report

    @override
    def state_dict(self) -> StateDict:
        """Update counts, which order checkpoints by age."""
        return {"updates": self._state.updates}
