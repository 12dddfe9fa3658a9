"""Where a learner's unrolls come from; and the simplest place: actors in its own process."""

import time
from typing import Protocol, final

import numpy as np

from slm_lab.agent.memory.unroll import Unroll, UnrollLayout
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.errors import LabError
from slm_lab.core.types import StateDict
from slm_lab.experiment.actor import Player
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.pipe import SMALLER, slots_per_actor
from slm_lab.experiment.seeding import session_seeds
from slm_lab.spec.schema.spec import Spec


class Inlet(Protocol):
    """Where unrolls come from, as the learner sees it."""

    weights: Publication
    num_actors: int
    num_slots: int
    """Unrolls of one actor that the learner can hold, or that can wait for it."""

    def look(self) -> None:
        """Does what actors need while nothing is asked of them."""

    def begin(self) -> None:
        """First episodes begin."""

    def receive(self, seconds: float) -> tuple[int, Unroll] | None:
        """See `LearnerEnd.receive`."""

    def give_back(self, actor: int) -> None:
        """See `LearnerEnd.give_back`."""

    @property
    def nothing_comes(self) -> bool:
        """Whether there will be no more."""

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that all actors together have waited for slots, and acted."""

    @property
    def cpu_t(self) -> float:
        """CPU seconds of the actors' processes."""

    def end(self) -> None:
        """No unroll is wanted any more."""

    def stand_aside(self, aside: bool) -> None:
        """Whether the learner does something else."""

    def state_dict(self) -> StateDict:
        """What comes next depends on it."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it."""

    def close(self) -> None:
        """Frees environments."""


@final
class InTurn(Inlet):
    """Actors in the learner's own process: each plays when an unroll is asked for, in turn."""

    def __init__(self, spec: Spec, root_seed: int, trial: int, first: int) -> None:
        count = spec.meta.max_session
        self.num_actors = count
        seeds = [session_seeds(root_seed, trial, first + actor) for actor in range(count)]
        self._players: list[Player] = []
        try:
            for each in seeds:
                self._players.append(Player(spec, each))
        except BaseException:
            self.close()
            raise
        one = self._players[0]
        layout = UnrollLayout(one.writer.layout, len(one.env.statistics))
        self.weights = Publication.of(one.agent.learner.flats, layout.num_statistics)
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

    def look(self) -> None:
        """See `Inlet`."""

    def begin(self) -> None:
        """See `Inlet`."""
        for player in self._players:
            player.reset()

    def receive(self, seconds: float) -> tuple[int, Unroll]:
        """The next actor plays."""
        turn, actor = divmod(self._turn, self.num_actors)
        ring = self._unrolls[actor]
        unroll = ring[turn % len(ring)]
        began = time.perf_counter()
        self._players[actor].play(unroll)
        self._acted += time.perf_counter() - began
        self._turn += 1
        return actor, unroll

    def give_back(self, actor: int) -> None:
        """See `Inlet`."""

    @property
    def nothing_comes(self) -> bool:
        """Never."""
        return False

    @property
    def waited(self) -> tuple[float, float]:
        """Nobody waits: who has no turn does not count."""
        return 0.0, self._acted

    @property
    def cpu_t(self) -> float:
        """None of their own."""
        return 0.0

    def end(self) -> None:
        """See `Inlet`."""

    def stand_aside(self, aside: bool) -> None:
        """See `Inlet`."""

    def state_dict(self) -> StateDict:
        """The actors, and what was published last."""
        return {
            "turn": self._turn,
            "players": [player.state_dict() for player in self._players],
            "weights": self.weights.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Inlet`."""
        self._turn = int(state["turn"])
        self.weights.load_state_dict(state["weights"])
        for player, saved in zip(self._players, state["players"], strict=True):
            player.load_state_dict(saved)

    def close(self) -> None:
        """See `Inlet`."""
        for player in self._players:
            player.close()
