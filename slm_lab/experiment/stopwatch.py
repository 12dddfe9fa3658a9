"""How long a Session has trained, by the wall and by the CPU."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

from slm_lab.core.types import StateDict


class Elapsed(NamedTuple):
    """Seconds of training."""

    wall_t: float
    cpu_t: float
    """Of this process; without those of environments that have processes of their own."""


@final
class Stopwatch:
    """Counts from `start`, on top of what was counted before a Session was resumed."""

    def __init__(self) -> None:
        self._before = Elapsed(0.0, 0.0)
        self._began = _now()

    def start(self) -> None:
        """What has passed until now does not count."""
        self._began = _now()

    def read(self) -> Elapsed:
        """What has been counted so far."""
        return _plus(self._before, _since(self._began))

    def cpu_t(self) -> float:
        """The CPU seconds of it."""
        return self.read().cpu_t

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done here is not training."""
        began = _now()
        yield
        self._began = _plus(self._began, _since(began))

    def go_on_after(self, wall_t: float, cpu_t: float) -> None:
        """What another process has counted comes before what this one does."""
        self._before = Elapsed(wall_t, cpu_t)

    def state_dict(self) -> StateDict:
        """What has been counted."""
        return self.read()._asdict()

    def load_state_dict(self, state: StateDict) -> None:
        """Goes on from there."""
        self.go_on_after(float(state["wall_t"]), float(state["cpu_t"]))


def _now() -> Elapsed:
    return Elapsed(time.perf_counter(), time.process_time())


def _since(began: Elapsed) -> Elapsed:
    now = _now()
    return Elapsed(now.wall_t - began.wall_t, now.cpu_t - began.cpu_t)


def _plus(one: Elapsed, other: Elapsed) -> Elapsed:
    return Elapsed(one.wall_t + other.wall_t, one.cpu_t + other.cpu_t)
