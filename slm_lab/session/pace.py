"""The stretches of a Session's work: how long each took, by its kind."""

import time
from typing import ClassVar, Final

import numpy as np

from slm_lab.core.state import SavedFields
from slm_lab.core.types import IntArray

ACTING: Final = "acting"
ENVIRONMENT: Final = "environment"
MEMORY: Final = "memory"
UPDATE: Final = "update"
"""The rest of a training event, or all of it where its steps are not told apart."""
GRADIENT: Final = "gradient"
"""Up to the gradient of one optimizer step."""
STEP: Final = "step"
"""The optimizer step, and what workers exchange in it."""
RECEIVE: Final = "receive"
"""What a learner does with a step or an unroll of an actor, but for learning."""
PUBLISH: Final = "publish"
"""A copy of the learner's weights for the actors."""
EXCHANGE: Final = "exchange"
"""A message to all ranks and theirs to this one, without waiting for them."""
EXCHANGED_FLOAT: Final = "exchanged_float"
"""What an exchange takes more for each number of a rank."""


NANO: Final = 1e9
"""Nanoseconds in a second."""


def of_network(kind: str, network: str) -> str:
    """The kind of work on this network, such as the gradient of a critic: it takes
    another time than that of an actor."""
    return f"{kind}.{network}"


class Pace(SavedFields):
    """Counts the seconds of each kind of work. A stretch begins at `begin`, or where
    the one before ended, and ends at `passed`."""

    is_virtual: ClassVar[bool] = False
    """Whether its time is drawn, and not measured."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """Seconds so far, by kind."""
        self._began = time.perf_counter()

    def join(self) -> None:
        """Is called before the first step, fresh or resumed."""

    def begin(self) -> None:
        """Begins a stretch: the time since the last one belongs to none."""
        self._began = time.perf_counter()

    def passed(self, kind: str) -> None:
        """Ends a stretch of this kind; the next one begins."""
        now = time.perf_counter()
        self.add(kind, now - self._began)
        self._began = now

    def add(self, kind: str, seconds: float) -> None:
        """Counts `seconds` of a kind of work."""
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    @property
    def now_seconds(self) -> float:
        """The time now, in seconds from any origin."""
        return float(self.clock()[0]) / NANO

    def clock(self) -> IntArray:
        """(2,): the time now, and the CPU time of this process, both in nanoseconds
        from any origin."""
        return np.array([time.perf_counter_ns(), time.process_time_ns()])
