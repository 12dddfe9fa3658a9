"""The pace of a worker in virtual time: what its work costs is drawn, not measured."""

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.core.types import IntArray, StateDict
from slm_lab.parallel.virtual.costs import Draws
from slm_lab.parallel.virtual.turns import Turns
from slm_lab.session.pace import EXCHANGED_FLOAT, NANO, Pace


@final
class VirtualPace(Pace):
    """Spends drawn seconds on each stretch of work, `slowdown` times as many, and then
    waits for its turn."""

    saved: ClassVar = {"busy": "_busy", "seconds": "seconds"}
    is_virtual = True

    def __init__(self, draws: Draws, turns: Turns, slowdown: float) -> None:
        super().__init__()
        self._draws = draws
        self._turns = turns
        self._slowdown = slowdown
        self._saved_clock = 0
        self._busy = 0
        self._last_meeting = 0, 0
        """The nanoseconds of the last exchange with its wait, and without."""

    @override
    def passed(self, kind: str) -> None:
        nanoseconds = round(NANO * self._slowdown * self._draws.draw(kind))
        self._busy += nanoseconds
        self.add(kind, nanoseconds / NANO)
        self._turns.advance(nanoseconds)

    @property
    def now(self) -> int:
        """The virtual nanoseconds."""
        return self._turns.clock

    def wait_for(self, clock: int) -> None:
        """Idles until this virtual time, if it is not past."""
        self._turns.advance(max(clock - self._turns.clock, 0))

    def meet(self, clocks: Sequence[int], kind: str, numbers: int = 0) -> int:
        """Waits until the latest of the ranks' `clocks`, then spends the time of an
        exchange of so many `numbers`. Returns the nanoseconds of both."""
        exchange = self._draws.draw(kind)
        exchange += numbers * len(clocks) * self._draws.draw(EXCHANGED_FLOAT)
        spent = round(NANO * self._slowdown * exchange)
        self._busy += spent
        self.add(kind, spent / NANO)
        passed = max(clocks) - self._turns.clock + spent
        self._last_meeting = passed, spent
        self._turns.advance(passed)
        return passed

    def take_back_meeting(self) -> int:
        """Makes the last exchange, and the wait for it, take no time; returns the
        nanoseconds of both."""
        passed, spent = self._last_meeting
        self._last_meeting = 0, 0
        self._busy -= spent
        self._turns.advance(-passed)
        return passed

    @override
    def clock(self) -> IntArray:
        return np.array([self._turns.clock, self._busy])

    @override
    def join(self) -> None:
        self._turns.join(self._saved_clock)

    @override
    def state_dict(self) -> StateDict:
        return {
            **super().state_dict(),
            "clock": self._turns.clock,
            "counts": dict(self._draws.counts),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """The saved clock is set once this worker joins the others."""
        super().load_state_dict(state)
        self._saved_clock = int(state["clock"])
        self._draws.counts.update(state["counts"])
