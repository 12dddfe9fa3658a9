"""Hogwild!: the Sessions of a Trial as lock-free workers on global parameters in shared memory."""

import logging
import time
from collections.abc import Callable, Mapping
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
    load_unit,
)
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.agent.optim.shared_memory import into_shared_memory
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.moments import merged
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.progress import ASIDE, EARLY, END, Board, Phase

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
"""How long a worker waits at most for the others to start: many share the cores while they do."""
PARK_SECONDS = 5.0
"""How long a worker stands still at most until all others do, or as long as its last training event
took: theirs take as long."""
STOP_SECONDS = 1.0
"""The same where the user waits for the end."""
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

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        return Hogwild(board, worker, self)

    def load(self, saved: StateDict) -> None:
        """Puts back what a worker's checkpoint has for all."""
        for name, unit in self.units.items():
            load_unit(unit, saved["agent"]["learner"]["units"][name])
            unit.updates[0] = saved["crew"]["updates"][name]
        self.statistics.copy_(torch.from_numpy(saved["env"]["statistics"]))

    def state_dict(self) -> StateDict:
        """What `load` puts back."""
        units = {name: unit.state_dict() for name, unit in self.units.items()}
        return {
            "agent": {"learner": {"units": units}},
            "env": {"statistics": self.statistics.numpy().copy()},
            "crew": {"updates": self.updates},
        }

    @property
    def updates(self) -> dict[str, int]:
        """The gradient steps that all workers have taken, of each unit."""
        return {name: int(unit.updates.sum()) for name, unit in self.units.items()}

    @staticmethod
    def age(saved: StateDict) -> tuple[int, int]:
        """Frames of all workers, and gradient steps: the greater, the later it was saved. A
        worker's clock ticks before its training event, so several may have the same frames."""
        return sum(saved["frames"]), sum(saved["crew"]["updates"].values())

    @staticmethod
    def is_in(saved: StateDict) -> bool:
        """Whether a worker's checkpoint has it all: only one of those made together has."""
        units = saved["agent"]["learner"]["units"]
        return all(unit["rule"] is not None for unit in units.values())


def is_on_cpu(optimizer: Optimizer) -> bool:
    """Whether the network can be the global one, which is in the memory of the CPU."""
    return optimizer.flat.vector.device.type == "cpu"


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
        self._refreshed = time.perf_counter()
        self._event_seconds = 0.0

    def clock(self, max_frame: int) -> Clock:
        """See `Crew`."""
        return Clock(self._board.clock_slots, self._session, max_frame)

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """See `Crew`."""
        self._agent, self._env = agent, env
        self._syncs: dict[str, HogwildSync] = {}
        for name, optimizer in agent.learner.units.optimizers.items():
            in_place = self._state.mode == "shared" and is_on_cpu(optimizer)
            kind = SharedSync if in_place else SyncedSync
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

    def assemble(self) -> None:
        """So that none spends the budget alone. One that comes later finds the others running."""
        self._board.write(self._session, phase=Phase.READY)
        self._wait(self._may_begin, START_SECONDS)

    def _may_begin(self) -> bool:
        phases = [self._board.phase(session) for session in range(self._board.num_sessions)]
        return Phase.RUNNING in phases or not {Phase.WAITING, Phase.STARTING} & {*phases}

    def enter(self) -> None:
        """Not while the others stand still for a checkpoint."""
        board, me = self._board, self._session
        wanted = board.save_requested
        self._wait(lambda: not any(self._copies(other, wanted) for other in self._others()))
        wanted = board.save_requested
        over = bool((board.copied == wanted).any())
        board.copied[me] = self._saved = wanted if over else wanted - 1
        board.arrived[me] = 0

    def stand_aside(self) -> None:
        """See `Crew`."""
        self._board.copied[self._session] = self._board.arrived[self._session] = ASIDE

    def refresh(self) -> None:
        """See `Crew`."""
        self._refreshed = time.perf_counter()
        if self._replicas:
            self._pull()

    def _pull(self) -> None:
        units = self._agent.learner.units.optimizers
        with torch.no_grad():
            for name, sync in self._syncs.items():
                sync.refresh(units[name].flat)

    def learned(self, report: dict[str, float], cpu_t: Callable[[], float]) -> dict[str, float]:
        """Merges the statistics of the environments into those of all.

        Raises NonFiniteLossError for statistics that would spoil those of all.
        """
        self._event_seconds = time.perf_counter() - self._refreshed
        if len(self._pulled):
            own = self._env.statistics
            if not np.isfinite(own).all():
                raise NonFiniteLossError(
                    "the running statistics of observations or rewards are not finite: the "
                    "environment gave a number that is not"
                )
            self._pulled = merged(self._total, self._pulled, own, self._env.moments)
            self._total[:] = self._pulled
            own[:] = self._pulled
        return report

    def report(self, seconds: float) -> dict[str, float]:
        """See `Crew`."""
        staleness = [count for sync in self._syncs.values() for count in sync.staleness]
        for sync in self._syncs.values():
            sync.staleness.clear()
        steps = self._agent.learner.opt_step
        taken, self._opt_step = steps - self._opt_step, steps
        report = {"updates_per_s": taken / seconds} if seconds > 0 else {}
        if staleness:
            median, most = np.percentile(staleness, [50, 95])
            report |= {"staleness_p50": float(median), "staleness_p95": float(most)}
        return report

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
        board, me = self._board, self._session
        began = time.perf_counter()
        self._saved = wanted = board.save_requested
        board.arrived[me] = wanted
        state = self._copy_where_all_stand_still(wanted, copy)
        if state is None:
            board.arrived[me] = 0  # first, so that nobody takes it to stand still any more
            told = "no checkpoint: not all workers stood still within %.3g s"
            logger.warning(told, self._patience)
        board.copied[me] = wanted
        if state is not None:
            self._wait(lambda: all(self._is_done(other, wanted) for other in self._others()))
        board.arrived[me] = 0
        self.paused(time.perf_counter() - began)
        return state

    def paused(self, seconds: float) -> None:
        """See `Crew`."""
        self._board.parked[self._session] = int(seconds * 1e6)

    def _copy_where_all_stand_still(
        self, wanted: int, copy: Callable[[], StateDict]
    ) -> StateDict | None:
        """None where someone has gone on: its clock ticks before it changes a weight."""
        slots = self._board.clock_slots
        self._wait(
            lambda: self._all_stand_still(wanted) or self._some_went_on(wanted), self._patience
        )
        frames = slots.copy()
        if not self._all_stand_still(wanted):
            return None
        state = self._copy(copy, any(self._board.arrived[o] == wanted for o in self._lower()))
        return state if np.array_equal(slots, frames) else None

    @property
    def _patience(self) -> float:
        return max(PARK_SECONDS, self._event_seconds)

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """See `Crew`. One that has not waited for all says so before it makes its copy, so that
        whoever comes later does not rely on it: of all copies the last always has everything."""
        board, me = self._board, self._session
        board.arrived[me] = END
        seconds = STOP_SECONDS if board.user_waits else PARK_SECONDS
        all_stand_still = self._wait(lambda: self._all_stand_still(END), seconds)
        board.saving[me] = 1
        if all_stand_still:
            state = self._copy(copy, any(board.copied[o] != EARLY for o in self._lower()))
            board.copied[me] = END
        else:
            logger.warning("saved at the end, though not all workers stood still by then")
            board.copied[me] = EARLY
            state = self._copy(copy, another_has_it=False)
        return state

    def _all_stand_still(self, wanted: int) -> bool:
        return all(self._board.arrived[other] >= min(wanted, ASIDE) for other in self._others())

    def _some_went_on(self, wanted: int) -> bool:
        """Whether it is too late: someone is done with the checkpoint, or has given it up."""
        board = self._board
        return any(board.copied[o] >= wanted > board.arrived[o] for o in self._others())

    def _copies(self, other: int, wanted: int) -> bool:
        return bool(self._board.arrived[other] == wanted > self._board.copied[other])

    def _is_done(self, other: int, wanted: int) -> bool:
        return bool(self._board.copied[other] >= wanted or self._board.arrived[other] == END)

    def _copy(self, copy: Callable[[], StateDict], another_has_it: bool) -> StateDict:
        """The optimizers' state is in one copy: that of the first worker that makes one."""
        self._pull()
        state = copy()
        if another_has_it:
            for unit in state["agent"]["learner"]["units"].values():
                unit["rule"] = None
        return state

    def _others(self) -> list[int]:
        running = Phase.RUNNING
        sessions = range(self._board.num_sessions)
        return [s for s in sessions if s != self._session and self._board.phase(s) == running]

    def _lower(self) -> list[int]:
        return [other for other in self._others() if other < self._session]

    def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        deadline = time.perf_counter() + (PARK_SECONDS if seconds is None else seconds)
        while not until():
            if time.perf_counter() > deadline:
                return False
            time.sleep(POLL)
        return True

    def state_dict(self) -> StateDict:
        """By which a checkpoint is told from an older one."""
        return {"updates": self._state.updates}

    @property
    def solved(self) -> bool:
        """See `Crew`."""
        return bool(self._board.solved.any())

    def declare_solved(self) -> None:
        """See `Crew`."""
        self._board.solved[self._session] = 1
