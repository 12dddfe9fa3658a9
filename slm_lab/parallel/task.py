"""The task of one process of a training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.run_dir import RunDir

if TYPE_CHECKING:
    from slm_lab.session.strategy import StrategyFactory
    from slm_lab.spec.schema.spec import Spec
    from slm_lab.storage.result import SessionResult


class Runnable(Protocol):
    """What runs in a process of a training: a Session or an actor."""

    def run(self) -> "SessionResult":
        """Runs to the end, or until a stop is requested."""

    def close(self) -> None:
        """Frees environments and files."""


class Program(Protocol):
    """Builds the Runnable of a process that is not a Session."""

    def build(self, task: "SessionTask", board: StatusBoard) -> Runnable:
        """The Runnable for `task`; `board` is the whole Trial's."""


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
    """Modules that register plug-ins."""
    workers: range = range(0)
    """The Sessions that train one agent together, including this one; empty: it trains alone."""
    common: "StrategyFactory | None" = None
    """Makes their strategies and holds what they share."""
    program: Program | None = None
    """What runs instead of a Session; None: a Session."""
    replaces: str | None = None
    """Why the process that this one replaces died."""
    restarted_because: str | None = None
    """Why all Sessions of the training restart from their last checkpoint."""
