"""A training in virtual time: what its workers share, and what their work costs."""

from dataclasses import dataclass
from typing import final

import numpy as np

from slm_lab.parallel.virtual.costs import Costs, Draws, MeasuredPace, costs_of
from slm_lab.parallel.virtual.pace import VirtualPace
from slm_lab.parallel.virtual.turns import Turns, TurnsMemory
from slm_lab.session.pace import Pace
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.session.strategy import Strategy, independent
from slm_lab.spec.schema.meta import MetaSpec

RUN = (Phase.STARTING, Phase.READY, Phase.RUNNING)
"""Phases of a worker for which others wait."""


@final
@dataclass(frozen=True)
class Simulation:
    """The virtual time of W workers. It can be sent to their processes."""

    memory: TurnsMemory
    costs: Costs
    slowdown: float
    """How many times as long work takes as it would for a worker alone on the
    machine."""
    seed: int

    @classmethod
    def of(cls, meta: MetaSpec, seed: int) -> "Simulation | None":
        """The simulation of a training; None in real time, and while its costs are
        measured. Raises LabError if shared memory has no room."""
        num_workers = meta.max_session + meta.mode.has_learner
        settings = meta.simulate
        if settings is None or settings.costs is None:
            return None
        return cls(
            memory=TurnsMemory.of(num_workers),
            costs=costs_of(settings.costs),
            slowdown=1.0 + settings.contention * (num_workers - 1),
            seed=seed,
        )

    def turns(self, status_board: StatusBoard, worker: int) -> Turns:
        """The turns of one worker; `status_board` has the W workers."""
        return Turns(
            memory=self.memory,
            worker=worker,
            is_alive=lambda other: status_board.phase(other) in RUN,
            is_stopping=lambda: status_board.stop_requested,
        )

    def pace_alone(self, worker: int) -> VirtualPace:
        """The pace of a worker for whose clock no other waits."""
        turns = Turns(TurnsMemory.of(1), 0, is_alive=lambda other: True)
        return self.pace(turns, worker)

    def pace(self, turns: Turns, worker: int) -> VirtualPace:
        """The pace of one worker."""
        return VirtualPace(self.draws(worker), turns, self.slowdown)

    def draws(self, worker: int) -> Draws:
        """The costs of one worker, which no other draws."""
        seed = np.random.SeedSequence([self.seed, worker]).generate_state(1)
        return Draws(self.costs, int(seed[0]))


def lone_strategy(
    meta: MetaSpec, seed: int, status_board: StatusBoard, session: int
) -> Strategy:
    """The strategy of an independent Session, in virtual time if `meta` says so."""
    strategy = independent(status_board, session)
    strategy.pace = real_pace(meta)
    simulation = Simulation.of(meta, seed)
    if simulation is not None:
        strategy.pace = simulation.pace_alone(session)
    return strategy


def real_pace(meta: MetaSpec) -> Pace:
    """The pace of a worker in real time, which measures the costs of a simulation that
    has none yet."""
    if meta.simulate is not None and meta.simulate.costs is None:
        return MeasuredPace()
    return Pace()
