"""What passes between actors and their learner, in numbers: who waits, and how old samples are."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

WARM_UP = 3
"""Iterations at the beginning that are not measured: buffers and caches are cold."""


@final
class Traffic:
    """Measured by the learner between two rows.

    `num_slices` are the environments whose steps one iteration learns from.
    """

    columns = ("eps", "policy_lag", "policy_lag_max", "actor_wait_share", "learner_wait_share")

    def __init__(self, num_slices: int) -> None:
        self._num_slices = num_slices
        self._lags: list[int] = []
        self._iterations: list[float] = []
        self._to_skip = WARM_UP
        self._ended_at: float | None = None
        self._waited = 0.0
        self._actors = (0.0, 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done here is waiting for actors."""
        began = time.perf_counter()
        yield
        self._waited += time.perf_counter() - began

    def note_lag(self, updates: int) -> None:
        """An unroll has come that was played with weights so many updates old."""
        self._lags.append(updates)

    def end_iteration(self) -> None:
        """What was received has been learned from."""
        now = time.perf_counter()
        if self._ended_at is not None:
            if self._to_skip:
                self._to_skip -= 1
            else:
                self._iterations.append(now - self._ended_at)
        self._ended_at = now

    def restart(self, waited: float, acted: float) -> None:
        """The learner has done something else meanwhile, which is no iteration. What actors have
        waited and acted in that time, s, does not count."""
        self._ended_at = None
        self._actors = (self._actors[0] + waited, self._actors[1] + acted)

    def report(self, seconds: float, waited: float, acted: float) -> dict[str, float]:
        """Of the `seconds` since the last one; `waited` and `acted` are the actors' so far, s."""
        report: dict[str, float] = {}
        if self._iterations:
            report["eps"] = self._num_slices / statistics.median(self._iterations)
        if self._lags:
            report["policy_lag"] = sum(self._lags) / len(self._lags)
            report["policy_lag_max"] = float(max(self._lags))
        waited_now, acted_now = waited - self._actors[0], acted - self._actors[1]
        if waited_now + acted_now > 0:
            report["actor_wait_share"] = waited_now / (waited_now + acted_now)
        if seconds > 0:
            report["learner_wait_share"] = self._waited / seconds
        self._lags, self._iterations = [], []
        self._waited, self._actors = 0.0, (waited, acted)
        return report
