"""The task of one process of a training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slm_lab.session.seeding import SessionSeeds, session_seeds
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.run_dir import RunDir, SessionPaths

if TYPE_CHECKING:
    from slm_lab.session.strategy import StrategyFactory
    from slm_lab.spec.schema.spec import Spec
    from slm_lab.storage.result import SessionResult


@dataclass(frozen=True)
class SessionTask:
    """Everything that a process of a training needs to run."""

    spec: "Spec"
    run_dir: RunDir
    root_seed: int
    trial: int
    session: int
    num_sessions: int
    """Sessions of the whole Trial."""
    resume: bool
    checked: bool = False
    imports: tuple[str, ...] = ()
    workers: range = range(0)
    """The Sessions that train one agent together, including this one; empty: it trains
    alone."""
    make_strategy: "StrategyFactory | None" = None
    program: "Callable[[SessionTask, StatusBoard], SessionResult] | None" = None
    """The function that runs instead of a Session, with the whole Trial's status
    board; None: a Session."""
    replaces: str | None = None
    """Why the process that this one replaces died."""
    until: int | None = None
    """The total frame of its training at which the Session saves and stops. None: it
    trains to the end of the budget."""
    restarted_because: str | None = None
    """Why all Sessions of the training restart from their last checkpoint."""

    @property
    def paths(self) -> SessionPaths:
        """The files of this Session."""
        return self.run_dir.session(self.trial, self.session)

    @property
    def seeds(self) -> SessionSeeds:
        """The seeds of this Session."""
        return session_seeds(self.root_seed, self.trial, self.session)
