"""Sources of unrolls from actors in the learner's own process."""

import time
from contextlib import ExitStack, closing
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import StateDict
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.queue import SMALLER, slots_per_actor
from slm_lab.parallel.actor_learner.source import ActorSeconds, UnrollSource
from slm_lab.parallel.actor_learner.unroll import Unroll, UnrollLayout
from slm_lab.parallel.task import SessionTask
from slm_lab.session.experience import Clock
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import StatusBoard


@final
class LocalActors(SavedFields):
    """Actors in the learner's own process, each with its ring of unrolls."""

    saved: ClassVar = {"actors": "_actors", "weights": "weights"}

    def __init__(self, task: SessionTask, status_board: StatusBoard) -> None:
        """The first actor uses the seeds of `task`, which is the learner's.
        `status_board` has the Sessions of the training, of which the first is the
        learner's."""
        spec = task.spec.as_learned()
        first = task.session
        self._status_board = status_board
        self.num_actors = spec.meta.max_session
        self.num_slots = slots_per_actor(spec.meta)
        slots = np.zeros(self.num_actors, np.int64)
        self._actors: list[UnrollActor] = []
        with ExitStack() as stack:
            for actor in range(self.num_actors):
                seeds = session_seeds(task.root_seed, task.trial, first + actor)
                clock = Clock(slots, actor, spec.env.max_frame)
                weights = None
                if actor:
                    weights = self._actors[0].weights
                actor_spec = spec.of_session(task.trial, first).numbered(
                    actor * spec.env.num_envs
                )
                unroll_actor = UnrollActor(
                    actor_spec, seeds, clock, weights, marks=status_board.marks_of(0)
                )
                self._actors.append(stack.enter_context(closing(unroll_actor)))
            self.weights = self._actors[0].weights
            self._unrolls = self._rings(self._actors[0].layout)
            self._closing = stack.pop_all()

    def _rings(self, layout: UnrollLayout) -> list[list[Unroll]]:
        """The slots of each actor. Raises LabError if memory has no room."""
        try:
            return [
                [Unroll.allocate(layout) for _ in range(self.num_slots)]
                for _ in self._actors
            ]
        except MemoryError as error:
            size = layout.record.itemsize * self.num_slots * self.num_actors
            raise LabError(
                f"there are no {size / 2**30:.0f} GiB of memory for the unrolls of "
                f"all actors; {SMALLER}"
            ) from error

    def begin(self) -> None:
        """Starts the first episodes."""
        for actor in self._actors:
            actor.reset()

    def play(self, actor: int, number: int) -> Unroll:
        """Plays the unroll `number` of an actor, with the newest weights."""
        unroll = self.unroll(actor, number)
        self._actors[actor].play(unroll, self._beat)
        return unroll

    def unroll(self, actor: int, number: int) -> Unroll:
        """The slot of the unroll `number` of an actor."""
        return self._unrolls[actor][number % self.num_slots]

    def _beat(self) -> bool:
        """Shows that a step has ended; never ends an unroll."""
        self._status_board.heartbeats[0] += 1
        return False

    @property
    def has_failed(self) -> bool:
        """Whether an environment has raised an exception."""
        return any(actor.env.has_failed for actor in self._actors)

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        flats = state["actors"][0]["flats"]
        layouts = {name: flat["layout"] for name, flat in flats.items()}
        self.weights.rearrange(self._actors[0].agent.learner.flats, layouts)

    def close(self) -> None:
        """Frees the environments."""
        self._closing.close()


class LocalSource(UnrollSource):
    """Actors in the learner's own process."""

    merged: ClassVar = ("_actors",)

    def __init__(self, actors: LocalActors) -> None:
        self._actors = actors
        self.weights = actors.weights
        self.num_actors = actors.num_actors
        self.num_slots = actors.num_slots

    @override
    def begin(self) -> None:
        self._actors.begin()

    @property
    @override
    def has_failed(self) -> bool:
        return self._actors.has_failed

    @override
    def close(self) -> None:
        self._actors.close()


@final
class SerialSource(LocalSource):
    """Actors that play in turn when an unroll is requested."""

    saved: ClassVar = {"turn": "_turn"}

    is_exhausted = False

    def __init__(self, actors: LocalActors) -> None:
        super().__init__(actors)
        self._turn = 0
        self._acted = 0.0

    @override
    def receive(self, seconds: float) -> tuple[int, Unroll]:
        number, actor = divmod(self._turn, self.num_actors)
        began = time.perf_counter()
        unroll = self._actors.play(actor, number)
        self._acted += time.perf_counter() - began
        self._turn += 1
        return actor, unroll

    @override
    def give_back(self, actor: int) -> None: ...

    @property
    @override
    def seconds(self) -> ActorSeconds:
        """Waiting for a turn does not count. The learner's process counts the CPU
        time."""
        return ActorSeconds(0.0, self._acted, 0.0)
