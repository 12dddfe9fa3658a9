"""Actors in virtual time, in the learner's process.

An actor plays an unroll with the weights that were newest when it began. So all unrolls
that begin before the learner publishes are played before it does. Each is there for the
learner once its virtual time has passed. Slots bound how far actors get ahead, as they
do in real time."""

from collections.abc import Sequence
from typing import ClassVar, final

from typing_extensions import override

from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict
from slm_lab.parallel.actor_learner.serial import LocalActors, LocalSource
from slm_lab.parallel.actor_learner.source import ActorSeconds
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.parallel.virtual.costs import Draws
from slm_lab.parallel.virtual.pace import VirtualPace
from slm_lab.session.pace import ACTING, ENVIRONMENT, MEMORY, NANO


class ActorTimes(SavedFields):
    """The virtual times of one actor, in nanoseconds, and its unrolls by number."""

    saved: ClassVar = {
        "free_at": "free_at",
        "slot_at": "slot_at",
        "handed_at": "handed_at",
        "num_begun": "num_begun",
        "num_received": "num_received",
        "num_returned": "num_returned",
        "waited": "waited",
        "acted": "acted",
    }

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.free_at = 0
        """The time when its last unroll was complete."""
        self.slot_at = 0
        """The time when the learner gave back the slot that it needs next."""
        self.handed_at: list[int] = []
        """The times when the unrolls that the learner has not received were
        complete."""
        self.num_begun = 0
        self.num_received = 0
        self.num_returned = 0
        self.waited = 0
        self.acted = 0

    @property
    def begins_at(self) -> int:
        """The time when its next unroll begins, if it has a slot."""
        return max(self.free_at, self.slot_at)


@final
class SimulatedSource(LocalSource):
    """Actors that play at the virtual times of their clocks; the learner's clock is
    `pace`. `draws` has the costs of each actor, which take `slowdown` times as long. No
    actor begins more unrolls than `max_unrolls` allow all of them."""

    def __init__(
        self,
        actors: LocalActors,
        pace: VirtualPace,
        draws: Sequence[Draws],
        slowdown: float,
        max_unrolls: int,
    ) -> None:
        super().__init__(actors)
        self._pace = pace
        self._slowdown = slowdown
        self._max_unrolls = max_unrolls
        self._times = [ActorTimes(of_actor) for of_actor in draws]

    @override
    def catch_up(self) -> None:
        """Plays all unrolls that begin before the learner's time."""
        while (actor := self._next_to_begin()) is not None:
            if self._times[actor].begins_at >= self._pace.now:
                return
            self._play(actor)

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """The learner's clock moves on to the time at which an unroll is complete, if
        it may wait."""
        self.catch_up()
        if seconds > 0:
            self._play_until_one_is_complete()
        handed = self._first_handed()
        if handed is None:
            return None
        times = self._times[handed]
        complete_at = times.handed_at[0]
        if complete_at > self._pace.now and seconds == 0:
            return None
        self._pace.wait_for(complete_at)
        times.handed_at.pop(0)
        number = times.num_received
        times.num_received += 1
        return handed, self._actors.unroll(handed, number)

    def _play_until_one_is_complete(self) -> None:
        """Plays all that begins before the first unroll is complete."""
        while (actor := self._next_to_begin()) is not None:
            handed = self._first_handed()
            begins_at = self._times[actor].begins_at
            if handed is not None and self._times[handed].handed_at[0] <= begins_at:
                return
            self._play(actor)

    @override
    def give_back(self, actor: int) -> None:
        times = self._times[actor]
        was_full = times.num_begun - times.num_returned == self.num_slots
        times.num_returned += 1
        if was_full:
            times.slot_at = self._pace.now

    def _next_to_begin(self) -> int | None:
        """The actor whose next unroll begins first, of those that have a slot."""
        if sum(times.num_begun for times in self._times) >= self._max_unrolls:
            return None
        free = [
            actor
            for actor, times in enumerate(self._times)
            if times.num_begun - times.num_returned < self.num_slots
        ]
        return min(free, key=lambda actor: self._times[actor].begins_at, default=None)

    def _first_handed(self) -> int | None:
        """The actor with the unroll that was complete first."""
        with_unrolls = [a for a, times in enumerate(self._times) if times.handed_at]
        return min(
            with_unrolls,
            key=lambda actor: self._times[actor].handed_at[0],
            default=None,
        )

    def _play(self, actor: int) -> None:
        times = self._times[actor]
        began_at = times.begins_at
        unroll = self._actors.play(actor, times.num_begun)
        kinds = (ACTING, ENVIRONMENT, MEMORY)
        seconds = sum(
            times.draws.draw(kind) for _ in range(unroll.num_steps) for kind in kinds
        )
        duration = round(NANO * self._slowdown * seconds)
        times.waited += began_at - times.free_at
        times.acted += duration
        times.free_at = began_at + duration
        times.handed_at.append(times.free_at)
        times.num_begun += 1

    @property
    @override
    def is_exhausted(self) -> bool:
        return self._next_to_begin() is None and self._first_handed() is None

    @property
    @override
    def seconds(self) -> ActorSeconds:
        waited = sum(times.waited for times in self._times) / NANO
        acted = sum(times.acted for times in self._times) / NANO
        return ActorSeconds(waited, acted, acted)

    @override
    def state_dict(self) -> StateDict:
        times = [
            {
                **actor_times.state_dict(),
                "counts": dict(actor_times.draws.counts),
                "unrolls": [
                    self._actors.unroll(actor, number).saved()
                    for number in range(actor_times.num_received, actor_times.num_begun)
                ],
            }
            for actor, actor_times in enumerate(self._times)
        ]
        return {"times": times, **super().state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for actor, saved in enumerate(state["times"]):
            times = self._times[actor]
            times.load_state_dict(saved)
            times.draws.counts.update(saved["counts"])
            for number, arrays in enumerate(saved["unrolls"], start=times.num_received):
                unroll = self._actors.unroll(actor, number)
                for name, array in vars(unroll).items():
                    array[...] = arrays[name]
