"""Hogwild!: a Trial's Sessions as lock-free workers on global parameters in shared
memory."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.resets import ResetSync
from slm_lab.agent.optim.optimizer import Optimizer, TrainState
from slm_lab.core.moments import merged, require_finite
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.parallel.hogwild.meetings import WorkerMeetings
from slm_lab.parallel.hogwild.pauses import WorkerPauses
from slm_lab.parallel.hogwild.sync import (
    CopySync,
    HogwildSync,
    InPlaceSync,
    SharedTrainState,
)
from slm_lab.parallel.shared_memory import into_shared_memory
from slm_lab.parallel.virtual.simulation import Simulation
from slm_lab.session.pace import Pace
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.session.strategy import Ballot, Blueprint, Strategy

HogwildMode = Literal["shared", "synced"]

ENDED = (Phase.DONE, Phase.FAILED, Phase.STOPPED)
"""Phases after which a worker takes no step."""


@dataclass(frozen=True)
class GlobalState:
    """The state that all workers share, in shared memory on the CPU."""

    mode: HogwildMode
    networks: Mapping[str, SharedTrainState]
    statistics: Tensor
    """The environments' running statistics, float64."""
    resets: Tensor
    """(1,) int64: the resets that the networks have behind them. Only the worker that
    leads writes it."""

    @classmethod
    def of(
        cls, mode: HogwildMode, agent: LearningAgent, env: VectorEnv, num_workers: int
    ) -> "GlobalState":
        """A shared copy of a fresh agent's state and its environments' statistics.
        Raises LabError if shared memory has no room."""
        optimizers = agent.learner.train_state.optimizers.items()
        networks = {
            name: SharedTrainState.of(optimizer, num_workers)
            for name, optimizer in optimizers
        }
        return cls(
            mode=mode,
            networks=networks,
            statistics=into_shared_memory(torch.from_numpy(env.statistics)),
            resets=into_shared_memory(torch.zeros(1, dtype=torch.int64)),
        )

    def load(self, saved: StateDict) -> None:
        """Restores the shared state from a worker's checkpoint."""
        for name, shared in self.networks.items():
            shared.load(saved["agent"]["learner"]["train_state"][name])
            shared.updates[0] = saved["strategy"]["updates"][name]
        self.statistics.copy_(torch.from_numpy(saved["env"]["statistics"]))
        self.resets[0] = saved["strategy"].get("resets", 0)  # older ones lack it

    def state_dict(self) -> StateDict:
        """The state that `load` restores."""
        saved = {name: shared.state_dict() for name, shared in self.networks.items()}
        return {
            "agent": {"learner": {"train_state": saved}},
            "env": {"statistics": self.statistics.numpy().copy()},
            "strategy": self.counts,
        }

    @property
    def counts(self) -> StateDict:
        """The counts of gradient steps and resets, as a checkpoint holds them."""
        return {"updates": self.updates, "resets": int(self.resets)}

    @property
    def updates(self) -> dict[str, int]:
        """The gradient steps of all workers together, by network."""
        return {
            name: int(shared.updates.sum()) for name, shared in self.networks.items()
        }

    @staticmethod
    def progress(saved: StateDict) -> tuple[int, int]:
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
class HogwildResets(ResetSync):
    """One worker's part in resets of the global networks. The worker that leads writes
    their new weights in place, once. The others find the count risen at their next
    training event. A gradient that another worker had begun before is applied to the
    new weights, as any late gradient."""

    def __init__(
        self,
        resets: Tensor,
        syncs: Mapping[str, HogwildSync],
        train_state: TrainState,
        leads: Callable[[], bool],
    ) -> None:
        self._resets = resets.numpy()
        self._syncs = syncs
        self._train_state = train_state
        self._leads = leads

    @override
    def reset(self, due: int, done: int, begin_anew: Callable[[], None]) -> int:
        flats = self._train_state.flats
        if due > self._resets[0] and self._leads():
            begin_anew()
            for name, sync in self._syncs.items():
                sync.publish(flats[name])
            self._resets[0] = due  # last: who sees it finds the weights, too
        elif self._resets[0] > done:
            for name, sync in self._syncs.items():
                sync.adopt(flats[name])
        return int(self._resets[0])


@final
class HogwildStrategy(Strategy, Ballot):
    """One of W workers. They do not vote; each sees when another has reached the target
    return."""

    saved: ClassVar = {**Strategy.saved, "reported_opt_step": "_opt_step"}
    merged: ClassVar = ("_meetings",)
    optional: ClassVar = (*Strategy.optional, "reported_opt_step")  # older ones lack it
    columns = ("staleness_mean", "staleness_p50", "staleness_p95", "updates_per_s")

    def __init__(
        self,
        state: GlobalState,
        status_board: StatusBoard,
        session: int,
        pace: Pace | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        """`pace` measures real time; a `simulation` has a pace of its own."""
        self._pauses = WorkerPauses(status_board, session, self._pull)
        pauses: WorkerPauses | WorkerMeetings = self._pauses
        self._meetings: WorkerMeetings | None = None
        """The meetings of the workers; None in real time."""
        if simulation is not None:
            turns = simulation.turns(status_board, session)
            pace = simulation.pace(turns, session)
            pauses = self._meetings = WorkerMeetings(
                pauses=self._pauses,
                turns=turns,
                status_board=status_board,
                worker=session,
                merge=self._merge,
                adopt=self._adopt,
                steps=lambda: self._agent.learner.opt_step,
            )
        super().__init__(
            Blueprint(status_board.clock_slots, session, self.columns),
            pauses,
            self,
            checkpoint=pauses,
            pace=pace,
        )
        self._status_board = status_board
        self._session = session
        self._state = state
        self._total = state.statistics.numpy()
        self._refreshed = time.perf_counter()
        self._opt_step = 0
        """The optimizer steps that rows have reported."""
        self._unreported: dict[str, list[int]] = {}
        """The staleness of steps that no row had reported before a resume, by
        network."""

    @property
    @override
    def solved(self) -> bool:
        return bool(self._status_board.solved.any())

    @override
    def declare_solved(self) -> None:
        self._status_board.solved[self._session] = 1

    @override
    def stop_peers(self) -> None:
        self._status_board.request_stop(user_waits=False)

    @override
    def join(self, agent: LearningAgent, env: VectorEnv) -> None:
        self._agent = agent
        self._env = env
        self._syncs: dict[str, HogwildSync] = {}
        for name, optimizer in agent.learner.train_state.optimizers.items():
            in_place = self._state.mode == "shared" and is_on_cpu(optimizer)
            kind = InPlaceSync if in_place else CopySync
            sync = kind(self._state.networks[name], self._session, name, self.pace)
            sync.join(optimizer)
            self._syncs[name] = sync
        if agent.learner.resets is not None:
            agent.learner.resets.sync = HogwildResets(
                self._state.resets,
                self._syncs,
                agent.learner.train_state,
                self._is_first,
            )
        # "shared" off the CPU: a replica that is refreshed before every use.
        self._replicas = self._state.mode == "shared" and any(
            isinstance(sync, CopySync) for sync in self._syncs.values()
        )
        for name, staleness in self._unreported.items():
            self._syncs[name].staleness += staleness
        if not self._unreported:
            self._opt_step = agent.learner.opt_step
        self._pulled = self._total.copy()
        env.statistics[:] = self._pulled

    def _is_first(self) -> bool:
        """Whether all workers of lower numbers have ended for good."""
        return all(
            self._status_board.phase(worker) in ENDED for worker in range(self._session)
        )

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
        self._merge_statistics()
        return report

    def _merge_statistics(self) -> None:
        if len(self._pulled):
            statistics = self._env.statistics
            require_finite(statistics)
            self._pulled = merged(
                self._total, self._pulled, statistics, self._env.moments
            )
            self._total[:] = self._pulled
            statistics[:] = self._pulled

    def _merge(self) -> None:
        """Adds all that this worker knows to the shared state."""
        self._pull()
        self._merge_statistics()

    def _adopt(self) -> None:
        """Makes this worker equal to the shared state."""
        flats = self._agent.learner.flats
        with torch.no_grad():
            for name, sync in self._syncs.items():
                sync.adopt(flats[name])
        self._pulled = self._total.copy()
        self._env.statistics[:] = self._pulled

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
            report |= {
                "staleness_mean": float(np.mean(staleness)),
                "staleness_p50": float(median),
                "staleness_p95": float(most),
            }
        return report

    @override
    def state_dict(self) -> StateDict:
        """Adds resets, and update counts, by which checkpoints are ordered. Also adds
        the staleness that no row has reported yet."""
        return {
            **super().state_dict(),
            **self._state.counts,
            "staleness": {
                name: list(sync.staleness) for name, sync in self._syncs.items()
            },
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._unreported = state.get("staleness", {})  # older ones lack it
