"""Turns of workers in the order of their virtual clocks.

Each worker has a clock. Only the worker with the lowest clock runs; of equal clocks,
the first worker. So workers read and write shared memory in the order of virtual time,
however few cores there are. Every cell has one writer. A semaphore only says that it
may be a worker's turn; the clocks decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Semaphore
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.core.types import BoolArray
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.shared_memory import into_shared_memory

EXPECTED: Final = 0
"""Has not begun."""
TAKES_PART: Final = 1
WAITS: Final = 2
"""Waits for all others, which go on meanwhile."""
ENDED: Final = 3
LATEST: Final = np.iinfo(np.int64).max
LOOK_SECONDS: Final = 0.05
"""How long a worker sleeps at most before it looks whether it is its turn."""


@dataclass(frozen=True)
class TurnsMemory:
    """The memory that W workers share."""

    clocks: Tensor
    """(W,) int64: virtual nanoseconds, which add up exactly"""
    states: Tensor
    """(W,) int64: whether a worker takes part"""
    rounds: Tensor
    """(W,) int64: how often a worker has met the others"""
    wishes: Tensor
    """(W,) int64: what a worker wants at a meeting"""
    signals: Sequence[Semaphore]
    """A semaphore for each worker."""

    @classmethod
    def of(cls, num_workers: int) -> "TurnsMemory":
        """Memory for W = `num_workers`. Raises LabError if there is no room."""
        counts = torch.zeros(num_workers, dtype=torch.int64)
        return cls(
            clocks=into_shared_memory(counts),
            states=into_shared_memory(counts),
            rounds=into_shared_memory(counts),
            wishes=into_shared_memory(counts),
            signals=[CONTEXT.Semaphore(0) for _ in range(num_workers)],
        )


@final
class Turns:
    """The turns of one of the workers in `memory`. `is_alive` says whether another
    worker still runs: the turn of a dead one is passed over. Once `is_stopping`, no
    worker waits."""

    def __init__(
        self,
        memory: TurnsMemory,
        worker: int,
        is_alive: Callable[[int], bool],
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._worker = worker
        self._clocks = memory.clocks.numpy()
        self._states = memory.states.numpy()
        self._rounds = memory.rounds.numpy()
        self._wishes = memory.wishes.numpy()
        self._signals = memory.signals
        self._is_alive = is_alive
        self._is_stopping = is_stopping

    @property
    def clock(self) -> int:
        """The virtual nanoseconds of this worker."""
        return int(self._clocks[self._worker])

    def join(self, clock: int) -> None:
        """Takes part from `clock` on; one that comes late, from the lowest clock of the
        others. It returns once all have joined."""
        others = self._states == TAKES_PART
        if others.any() and not (self._states == EXPECTED).any():
            clock = max(clock, int(self._clocks[others].min()))
            self._rounds[self._worker] = self._rounds.max()
        self._clocks[self._worker] = clock
        self._states[self._worker] = TAKES_PART
        self._wait_while(lambda: self._any_alive(self._states == EXPECTED))
        self._wake_all()

    def end(self) -> None:
        """Takes part no more; returns once no other does."""
        self._states[self._worker] = ENDED
        self._wake_all()
        self._wait_while(lambda: self._any_alive(self._states != ENDED))

    def advance(self, nanoseconds: int) -> None:
        """Spends virtual time, then waits for the next turn."""
        self._clocks[self._worker] += nanoseconds
        self.take()

    def take(self) -> None:
        """Waits until no other clock is lower."""
        current = self._next()
        if current == self._worker:
            return
        self._wake(current)
        self._wait_while(lambda: self._next() != self._worker)

    def meet(self, wish: int = 0) -> int:
        """Waits until every other worker that has not ended has come here too; returns
        the greatest wish of all. The clocks stay. What follows is in no order until
        `take` is called."""
        number = int(self._rounds[self._worker]) + 1
        self._wishes[self._worker] = wish
        self._rounds[self._worker] = number
        self._states[self._worker] = WAITS
        self._wake(self._next())
        self._wait_while(lambda: self._any_alive(self._is_behind(number)))
        present = self._rounds >= number
        greatest = int(self._wishes[present].max())
        # No worker leaves before every worker has seen that all are here.
        self._states[self._worker] = TAKES_PART
        self._wake_all()
        self._wait_while(
            lambda: self._any_alive((self._rounds == number) & (self._states == WAITS))
        )
        self._wake_all()
        return greatest

    def _is_behind(self, number: int) -> BoolArray:
        """(W,): who has not come to this meeting."""
        behind: BoolArray = (self._rounds < number) & (self._states != ENDED)
        return behind

    def _any_alive(self, workers: BoolArray) -> bool:
        """Whether any of these workers, but for this one, still runs."""
        numbers = np.flatnonzero(workers).tolist()
        return any(self._is_alive(n) for n in numbers if n != self._worker)

    def _wait_while(self, holds: Callable[[], bool]) -> None:
        while holds() and not self._is_stopping():
            if not self._signals[self._worker].acquire(timeout=LOOK_SECONDS):
                self._pass_over(self._next())

    def _next(self) -> int:
        """The worker whose turn it is; this one if none takes part."""
        takes_part = self._states == TAKES_PART
        if not takes_part.any():
            return self._worker
        return int(np.where(takes_part, self._clocks, LATEST).argmin())

    def _pass_over(self, worker: int) -> None:
        """Ends the part of a worker that has died."""
        if worker != self._worker and not self._is_alive(worker):
            self._states[worker] = ENDED

    def _wake(self, worker: int) -> None:
        if worker != self._worker:
            self._signals[worker].release()

    def _wake_all(self) -> None:
        for worker in range(len(self._signals)):
            self._wake(worker)
