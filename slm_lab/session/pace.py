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
"""A training event without its gradients and optimizer steps; the whole event where
these are not timed apart."""
GRADIENT: Final = "gradient"
"""The work that computes the gradient of one optimizer step."""
STEP: Final = "step"
"""One optimizer step, and what workers exchange for it."""
RECEIVE: Final = "receive"
"""All that a learner does with an actor's step or unroll, except learning from it."""
PUBLISH: Final = "publish"
"""A copy of the learner's weights for the actors."""
EXCHANGE: Final = "exchange"
"""An exchange of messages with all ranks, without the wait for the last of them."""
EXCHANGED_FLOAT: Final = "exchanged_float"
"""The additional time of an exchange for each number that a rank sends."""


NANO: Final = 1e9
"""Nanoseconds in a second."""


def network_kind(kind: str, network: str) -> str:
    """The kind of work on one network, such as "gradient.critic". Networks have kinds
    of their own because a critic's gradient takes another time than an actor's."""
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
        """Begins a stretch. The time since the end of the last one belongs to no
        stretch."""
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
