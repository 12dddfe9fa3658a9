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
        self._to_skip = WARM_UP
        self._began_at = time.perf_counter()
        self._is_whole = False
        """Whether the iteration began where the one before it ended, with nothing in between."""
        self._whole: list[float] = []
        self._parts: list[float] = []
        """Seconds of the iterations since the last report: whole ones, and what followed upon
        something else, in which actors went on."""
        self._known: float | None = None
        self._knows_whole = False
        """T_iter, s, as of the last report, and whether it is that of whole iterations."""
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
        if self._to_skip:
            self._to_skip -= 1
        else:
            (self._whole if self._is_whole else self._parts).append(now - self._began_at)
        self._began_at, self._is_whole = now, True

    def restart(self, waited: float, acted: float) -> None:
        """The learner has done something else meanwhile, which is no iteration. What actors have
        waited and acted in that time, s, does not count."""
        self._began_at, self._is_whole = time.perf_counter(), False
        self._actors = (self._actors[0] + waited, self._actors[1] + acted)

    def _seconds_of_iteration(self) -> float | None:
        """T_iter: the median since the last report, or what it was where none has ended since.

        What is left of iterations that something else came into stands in as long as there is no
        other: a learner that evaluates after each would never be measured.
        """
        measured = self._whole or ([] if self._knows_whole else self._parts)
        if measured:
            self._known, self._knows_whole = statistics.median(measured), bool(self._whole)
        self._whole, self._parts = [], []
        return self._known

    def report(self, seconds: float, waited: float, acted: float) -> dict[str, float]:
        """Of the `seconds` since the last one; `waited` and `acted` are the actors' so far, s."""
        report: dict[str, float] = {}
        seconds_of_iteration = self._seconds_of_iteration()
        if seconds_of_iteration is not None:
            report["eps"] = self._num_slices / seconds_of_iteration
        if self._lags:
            report["policy_lag"] = sum(self._lags) / len(self._lags)
            report["policy_lag_max"] = float(max(self._lags))
        waited_now, acted_now = waited - self._actors[0], acted - self._actors[1]
        if waited_now + acted_now > 0:
            report["actor_wait_share"] = waited_now / (waited_now + acted_now)
        if seconds > 0:
            report["learner_wait_share"] = self._waited / seconds
        self._lags = []
        self._waited, self._actors = 0.0, (waited, acted)
        return report
