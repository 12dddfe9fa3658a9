"""The interface of a learner's source of unrolls, and its throughput: waits, policy
lag, steps per second."""

import statistics
from abc import abstractmethod
from typing import ClassVar, NamedTuple, final

import numpy as np

from slm_lab.core.state import SavedFields
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.session.pace import Pace


class ActorSeconds(NamedTuple):
    """Seconds of all actors so far."""

    waited: float
    """Seconds of waiting for slots and replies."""
    acted: float
    cpu_t: float
    """CPU time of their processes."""


class UnrollSource(SavedFields):
    """A source of unrolls, as the learner uses it. By default its actors run
    elsewhere."""

    weights: WeightStore
    """The weights that the actors use; the learner publishes into it."""
    num_actors: int
    num_slots: int
    """Unrolls of one actor that can wait or be held by the learner."""

    def begin(self) -> None:
        """Starts the first episodes."""

    def poll(self) -> None:
        """Starts and replaces actors, and requests unrolls."""

    @abstractmethod
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The oldest waiting unroll and its actor; None if none arrives within
        `seconds`. It does not change until `give_back`."""

    def catch_up(self) -> None:
        """Is called before the learner publishes weights: what actors have begun until
        then is not played with these."""

    @abstractmethod
    def give_back(self, actor: int) -> None:
        """Releases the oldest unroll of this actor that the learner holds."""

    @property
    @abstractmethod
    def is_exhausted(self) -> bool:
        """Whether no more unrolls will come."""

    @property
    def has_failed(self) -> bool:
        """Whether an environment of an actor in this process has raised an
        exception."""
        return False

    @property
    @abstractmethod
    def seconds(self) -> ActorSeconds:
        """The seconds that the actors have spent."""

    def pause_actors(self, paused: bool) -> None:
        """Notes whether the learner pauses. Meanwhile actors wait without a limit."""

    def end(self) -> None:
        """Ends the actors: no more unrolls are needed."""

    @abstractmethod
    def close(self) -> None:
        """Frees environments and connections."""


WARM_UP = 3
"""First iterations, which are not measured: buffers and caches are cold."""


@final
class PipelineStats(SavedFields):
    """The learner's measurements between two rows. `num_slices` is the number of
    environments whose steps one iteration learns from."""

    columns = (
        "eps",
        "policy_lag",
        "policy_lag_max",
        "actor_wait_share",
        "learner_wait_share",
    )

    saved: ClassVar = {
        name: name
        for name in (
            "lags",
            "_to_skip",
            "_began_at",
            "_is_whole",
            "_whole",
            "_parts",
            "_known",
            "_knows_whole",
            "waited",
            "_actors",
        )
    }

    def __init__(self, num_slices: int, pace: Pace) -> None:
        self._pace = pace
        self._num_slices = num_slices
        self.lags: list[int] = []
        """Policy lags of the received unrolls, in updates."""
        self._to_skip = WARM_UP
        self._began_at = self._pace.now_seconds
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
        """The actors' seconds that are no longer counted, and the actors' seconds at
        the last pause."""

    def end_iteration(self) -> None:
        """Ends an iteration: the received unrolls have been learned from."""
        now = self._pace.now_seconds
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
        self._began_at = self._pace.now_seconds
        self._is_whole = False
        self._actors = self._actors + actors - self._paused_at

    def _seconds_of_iteration(self) -> float | None:
        """T_iter: the median since the last report, or its last value if no iteration
        has ended. Partial iterations count until there is a whole one. Otherwise a
        learner that evaluates after every iteration would never be measured."""
        measured = self._whole or ([] if self._knows_whole else self._parts)
        if measured:
            self._known = statistics.median(measured)
            self._knows_whole = bool(self._whole)
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
