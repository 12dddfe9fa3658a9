"""A queue between actors and a learner, for the tests of both its ends."""

import torch

from slm_lab.parallel.actor_learner.queue import (
    RING,
    ActorQueue,
    LearnerQueue,
    UnrollQueue,
)
from slm_lab.parallel.actor_learner.unroll import UnrollLayout
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.status_board import Phase, StatusBoard
from tests.support import memory_layout

ACTORS = 3
SLOTS = 2
STEPS = memory_layout((3,), horizon=2, num_envs=2)


class Lab:
    """A queue with its status board, and the processes at its ends."""

    def __init__(self, actors=ACTORS, slots=SLOTS, max_unrolls=1000):
        layout = UnrollLayout(STEPS, 0)
        self.queue = UnrollQueue(
            layout=layout,
            slots=torch.zeros(
                (actors, slots, layout.record.itemsize), dtype=torch.uint8
            ),
            ring_bytes=torch.zeros((actors, RING.itemsize), dtype=torch.uint8),
            weights=WeightStore.of({}, 0),
            requests=None,
            max_unrolls=max_unrolls,
        )
        self.status_board = StatusBoard.allocate(CONTEXT, 1 + actors)
        self.learner = LearnerQueue(self.queue, self.status_board)
        self.actors = [self.begun(actor) for actor in range(actors)]

    def begun(self, actor):
        """A process of an actor, the first or the next one."""
        end = ActorQueue(self.queue, self.status_board, actor)
        self.status_board.write(1 + actor, phase=Phase.RUNNING)
        return end

    def over(self, actor, phase):
        self.status_board.write(1 + actor, phase=phase)

    def hand_over(self, actor, at=0.0):
        """A whole unroll."""
        unroll = self.actors[actor].next_slot()
        unroll.head[-1] = at  # `handed_at`
        self.actors[actor].hand_over(1.0)
        return unroll

    def hand_over_all(self):
        """As many as an actor may."""
        for number in range(SLOTS):
            self.hand_over(0, number)
