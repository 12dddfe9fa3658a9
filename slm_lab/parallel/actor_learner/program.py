"""The program of an actor's process."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

from slm_lab.core.process import importing
from slm_lab.parallel.actor_learner.queue import UnrollQueue
from slm_lab.parallel.task import Program, SessionTask
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import StatusBoard

if TYPE_CHECKING:
    from slm_lab.parallel.actor_learner.actor import ActorSession

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class ActorProgram(Program):
    """Builds an actor that sends its unrolls through `queue`."""

    queue: UnrollQueue

    @override
    def build(self, task: SessionTask, board: StatusBoard) -> "ActorSession":
        """The first actor uses the seeds that the learner's Session would use.

        A replacement, or an actor of a resumed run, plays other episodes.
        """
        with importing():
            from slm_lab.parallel.actor_learner.actor import ActorSession

        actor = task.workers.index(task.session) - 1
        if task.replaces is not None:
            logger.warning("actor %d is replaced: %s", actor, task.replaces)
        own_board = board.part(task.workers)
        slots = own_board.clock_slots
        frame = int(slots[0] + slots[1 + actor])
        seeds = session_seeds(task.root_seed, task.trial, task.session - 1, frame)
        return ActorSession(task.spec, task.session, seeds, own_board, actor, self.queue)
