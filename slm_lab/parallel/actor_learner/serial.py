"""The source of unrolls from actors in the learner's own process."""

import time
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.types import StateDict
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.queue import SMALLER, slots_per_actor
from slm_lab.parallel.actor_learner.source import UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.session.clock import Clock
from slm_lab.session.seeding import session_seeds
from slm_lab.spec.schema.spec import Spec


@final
class SerialSource(UnrollSource):
    """Actors in the learner's own process, which play in turn when an unroll is requested."""

    is_exhausted = False
    cpu_t = 0.0

    def __init__(self, spec: Spec, root_seed: int, trial: int, first: int) -> None:
        count = spec.meta.max_session
        self.num_actors = count
        seeds = [session_seeds(root_seed, trial, first + actor) for actor in range(count)]
        self._players: list[UnrollActor] = []
        try:
            for each in seeds:
                self._players.append(UnrollActor(spec, each))
        except BaseException:
            self.close()
            raise
        layout, learner = self._players[0].layout, self._players[0].agent.learner
        self.weights = WeightStore.of(learner.flats, layout.num_statistics)
        slots = np.zeros(count, np.int64)
        for actor, player in enumerate(self._players):
            player.begin(Clock(slots, actor, spec.env.max_frame), self.weights)
        self.num_slots = slots_per_actor(spec.meta)
        try:
            self._unrolls = [
                [Unroll.allocate(layout) for _ in range(self.num_slots)] for _ in seeds
            ]
        except MemoryError as error:
            size = layout.num_bytes * self.num_slots * count
            self.close()
            raise LabError(
                f"there are no {size / 2**30:.0f} GiB of memory for the unrolls of all actors; "
                f"{SMALLER}"
            ) from error
        self._turn = 0
        self._acted = 0.0

    @override
    def begin(self) -> None:
        for player in self._players:
            player.reset()

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll]:
        """Has the next actor play."""
        turn, actor = divmod(self._turn, self.num_actors)
        ring = self._unrolls[actor]
        unroll = ring[turn % len(ring)]
        began = time.perf_counter()
        self._players[actor].play(unroll)
        self._acted += time.perf_counter() - began
        self._turn += 1
        return actor, unroll

    @override
    def give_back(self, actor: int) -> None: ...

    @property
    @override
    def waited(self) -> tuple[float, float]:
        """No waits: an actor whose turn it is not does not count."""
        return 0.0, self._acted

    @override
    def state_dict(self) -> StateDict:
        """The actors and the last published weights."""
        return {
            "turn": self._turn,
            "players": [player.state_dict() for player in self._players],
            "weights": self.weights.state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._turn = int(state["turn"])
        self.weights.load_state_dict(state["weights"])
        for player, saved in zip(self._players, state["players"], strict=True):
            player.load_state_dict(saved)

    @override
    def close(self) -> None:
        for player in self._players:
            player.close()
