"""Throughput of actors and their learner: waits, policy lag, steps per second."""

import statistics
import time
from typing import final

import numpy as np

from slm_lab.parallel.actor_learner.source import ActorSeconds

WARM_UP = 3
"""First iterations, which are not measured: buffers and caches are cold."""


@final
class PipelineStats:
    """The learner's measurements between two rows. `num_slices` is the number of
    environments whose steps one iteration learns from."""

    columns = (
        "eps",
        "policy_lag",
        "policy_lag_max",
        "actor_wait_share",
        "learner_wait_share",
    )

    def __init__(self, num_slices: int) -> None:
        self._num_slices = num_slices
        self.lags: list[int] = []
        """Policy lags of the received unrolls, in updates."""
        self._to_skip = WARM_UP
        self._began_at = time.perf_counter()
        self._is_whole = False
        """Whether the iteration directly follows the previous one."""
        self._whole: list[float] = []
        self._parts: list[float] = []
        """Seconds of the iterations since the last report: whole ones, and partial ones
        after an interruption during which actors continued."""
        self._known: float | None = None
        self._knows_whole = False
        """T_iter, s, at the last report, and whether it was measured on whole
        iterations."""
        self.waited = 0.0
        """Seconds that the learner has waited for actors since the last report."""
        self._actors = self._paused_at = np.zeros(len(ActorSeconds._fields))
        """The actors' seconds that are no longer counted, and those at the last
        pause."""

    def end_iteration(self) -> None:
        """Ends an iteration: the received unrolls have been learned from."""
        now = time.perf_counter()
        if self._to_skip:
            self._to_skip -= 1
        else:
            (self._whole if self._is_whole else self._parts).append(
                now - self._began_at
            )
        self._began_at = now
        self._is_whole = True

    def pause(self, actors: ActorSeconds) -> None:
        """Interrupts the iteration; `actors` are the actors' seconds so far."""
        self._paused_at = np.array(actors)

    def resume(self, actors: ActorSeconds) -> None:
        """Restarts the iteration. The actors' seconds since the pause are not
        counted."""
        self._began_at = time.perf_counter()
        self._is_whole = False
        self._actors = self._actors + actors - self._paused_at

    def _seconds_of_iteration(self) -> float | None:
        """T_iter: the median since the last report, or its last value if no iteration
        has ended. Partial iterations count until there is a whole one: otherwise a
        learner that evaluates after every iteration would never be measured."""
        measured = self._whole or ([] if self._knows_whole else self._parts)
        if measured:
            self._known, self._knows_whole = (
                statistics.median(measured),
                bool(self._whole),
            )
        self._whole = []
        self._parts = []
        return self._known

    def report(self, seconds: float, actors: ActorSeconds) -> dict[str, float]:
        """The report on the `seconds` since the last one; `actors` as in `pause`."""
        report: dict[str, float] = {}
        seconds_of_iteration = self._seconds_of_iteration()
        if seconds_of_iteration is not None:
            report["eps"] = self._num_slices / seconds_of_iteration
        if self.lags:
            report["policy_lag"] = sum(self.lags) / len(self.lags)
            report["policy_lag_max"] = float(max(self.lags))
        waited, acted, _ = (actors - self._actors).tolist()
        if waited + acted > 0:
            report["actor_wait_share"] = waited / (waited + acted)
        if seconds > 0:
            report["learner_wait_share"] = self.waited / seconds
        self.lags = []
        self.waited = 0.0
        self._actors = np.array(actors)
        return report
