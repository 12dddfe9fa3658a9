"""Wall-clock and CPU time that a Session has trained."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

import numpy as np
from typing_extensions import override

from slm_lab.core.state import HasState
from slm_lab.core.types import FloatArray, StateDict


class Elapsed(NamedTuple):
    """Seconds of training."""

    wall_t: float
    cpu_t: float
    """Of this process only; environments in worker processes are not counted."""


@final
class Stopwatch(HasState):
    """Counts seconds from `start`, added to those from before the Session was
    resumed."""

    def __init__(self) -> None:
        self._before = np.zeros(2)
        self._began = _now()

    def start(self) -> None:
        """Starts counting; earlier time is discarded."""
        self._began = _now()

    def read(self) -> Elapsed:
        """The seconds counted so far."""
        return Elapsed(*(self._before + (_now() - self._began)).tolist())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context, which is not training."""
        began = _now()
        yield
        self._began += _now() - began

    def resume_after(self, wall_t: float, cpu_t: float) -> None:
        """Adds the seconds that an earlier process counted."""
        self._before = np.array([wall_t, cpu_t])

    @override
    def state_dict(self) -> StateDict:
        return self.read()._asdict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.resume_after(float(state["wall_t"]), float(state["cpu_t"]))


def _now() -> FloatArray:
    """(2,), as in `Elapsed`."""
    return np.array([time.perf_counter(), time.process_time()])
