"""Hogwild!: the Sessions of a Trial as lock-free workers on global parameters in shared memory."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.agent import Agent
from slm_lab.agent.optim.hogwild import (
    GlobalUnit,
    HogwildSync,
    SharedSync,
    SyncedSync,
    into_shared_memory,
    load_unit,
)
from slm_lab.core.moments import merged
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.progress import Board, Phase

logger = logging.getLogger(__name__)

PARK_SECONDS = 5.0
"""How long a worker stands still at most until all others do."""
END = np.iinfo(np.int64).max
"""The checkpoint that is made at the end, whichever was the last before it."""
POLL = 0.0005
"""Seconds between two looks while standing still."""

Mode = Literal["shared", "synced"]


@dataclass(frozen=True)
class GlobalState:
    """What the workers have in common, in shared memory on the CPU."""

    mode: Mode
    units: Mapping[str, GlobalUnit]
    statistics: Tensor
    """The environments' running statistics, float64."""

    @classmethod
    def of(cls, mode: Mode, agent: Agent, env: VectorEnv, num_workers: int) -> "GlobalState":
        """As a fresh agent and its environments stand.

        Raises LabError where there is no room for it in shared memory.
        """
        units = agent.learner.units.optimizers
        shared = {name: GlobalUnit.of(each, num_workers) for name, each in units.items()}
        return cls(mode, shared, into_shared_memory(torch.from_numpy(env.statistics)))

    def load(self, saved: StateDict) -> None:
        """Puts back what a worker's checkpoint has for all."""
        for name, unit in self.units.items():
            load_unit(unit, saved["agent"]["learner"]["units"][name])
        self.statistics.copy_(torch.from_numpy(saved["env"]["statistics"]))

    @staticmethod
    def is_in(saved: StateDict) -> bool:
        """Whether a worker's checkpoint has it all: only one of those made together has."""
        units = saved["agent"]["learner"]["units"]
        return all(unit["rule"] is not None for unit in units.values())


@final
class Hogwild(Crew):
    """A worker among W."""

    columns = ("staleness_p50", "staleness_p95", "updates_per_s")

    def __init__(self, board: Board, session: int, state: GlobalState) -> None:
        self._board = board
        self._session = session
        self._state = state
        self._total = state.statistics.numpy()
        self._saved = board.save_requested

    def clock(self, max_frame: int) -> Clock:
        """See `Crew`."""
        return Clock(self._board.clock_slots, self._session, max_frame)

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """See `Crew`."""
        self._agent, self._env = agent, env
        self._syncs: dict[str, HogwildSync] = {}
        for name, optimizer in agent.learner.units.optimizers.items():
            on_cpu = optimizer.flat.vector.device.type == "cpu"
            kind = SharedSync if self._state.mode == "shared" and on_cpu else SyncedSync
            sync = kind(self._state.units[name], self._session)
            sync.join(optimizer)
            self._syncs[name] = sync
        # "shared" off the CPU: a replica that is as new as can be whenever it is used.
        self._replicas = self._state.mode == "shared" and any(
            isinstance(sync, SyncedSync) for sync in self._syncs.values()
        )
        self._opt_step = agent.learner.opt_step
        self._pulled = self._total.copy()
        env.statistics[:] = self._pulled

    def enter(self) -> None:
        """Not while the others stand still for a checkpoint."""
        self._wait(lambda: not any(self._stand_still()))
        wanted = self._board.save_requested
        done = bool((self._board.copied >= wanted).any())
        self._saved = wanted if done else wanted - 1

    def _stand_still(self) -> Iterable[bool]:
        """For each of the others whether it waits for a checkpoint to be copied."""
        wanted = self._board.save_requested
        for other in self._others():
            yield self._board.arrived[other] == wanted > self._board.copied[other]

    def refresh(self) -> None:
        """See `Crew`."""
        if self._replicas:
            self._pull()

    def _pull(self) -> None:
        units = self._agent.learner.units.optimizers
        with torch.no_grad():
            for name, sync in self._syncs.items():
                sync.refresh(units[name].flat)

    def learned(self) -> None:
        """Merges the statistics of the environments into those of all."""
        if len(self._pulled):
            own = self._env.statistics
            self._pulled = merged(self._total, self._pulled, own, self._env.moments)
            self._total[:] = self._pulled
            own[:] = self._pulled

    def report(self, seconds: float) -> dict[str, float]:
        """See `Crew`."""
        staleness = [count for sync in self._syncs.values() for count in sync.staleness]
        for sync in self._syncs.values():
            sync.staleness.clear()
        steps = self._agent.learner.opt_step
        taken, self._opt_step = steps - self._opt_step, steps
        if not staleness:
            return {}
        median, most = np.percentile(staleness, [50, 95])
        report = {"staleness_p50": float(median), "staleness_p95": float(most)}
        return report | ({"updates_per_s": taken / seconds} if seconds > 0 else {})

    @property
    def saves_at_rows(self) -> bool:
        """No: a checkpoint is made by all at once."""
        return False

    @property
    def asks_to_save(self) -> bool:
        """See `Crew`."""
        return self._board.save_requested > self._saved

    def save_together(self, copy: Callable[[], StateDict]) -> StateDict | None:
        """See `Crew`. Without a lock: everyone looks at what the others have written down."""
        self._saved = wanted = self._board.save_requested
        if not self._arrive(wanted):
            logger.warning("no checkpoint: not all workers stood still within %g s", PARK_SECONDS)
            self._board.copied[self._session] = wanted
            return None
        state = self._copy(copy)
        self._board.copied[self._session] = wanted
        self._wait(lambda: all(self._board.copied[o] >= wanted for o in self._others()))
        return state

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """See `Crew`."""
        self._arrive(END)
        state = self._copy(copy)
        self._board.copied[self._session] = END
        return state

    def _arrive(self, wanted: int) -> bool:
        """Whether all stand still that are running."""
        self._board.arrived[self._session] = wanted
        return self._wait(lambda: all(self._board.arrived[o] >= wanted for o in self._others()))

    def _copy(self, copy: Callable[[], StateDict]) -> StateDict:
        """The optimizers' state is in the copy of the first worker that runs."""
        self._pull()
        state = copy()
        if any(other < self._session for other in self._others()):
            for unit in state["agent"]["learner"]["units"].values():
                unit["rule"] = None
        return state

    def _others(self) -> list[int]:
        running = Phase.RUNNING
        sessions = range(self._board.num_sessions)
        return [s for s in sessions if s != self._session and self._board.phase(s) == running]

    def _wait(self, until: Callable[[], bool], seconds: float = PARK_SECONDS) -> bool:
        deadline = time.perf_counter() + seconds
        while not until():
            if time.perf_counter() > deadline:
                return False
            time.sleep(POLL)
        return True

    @property
    def solved(self) -> bool:
        """See `Crew`."""
        return self._board.solved

    def declare_solved(self) -> None:
        """See `Crew`."""
        self._board.declare_solved()
