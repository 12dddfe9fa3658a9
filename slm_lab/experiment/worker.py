"""What runs in the process of one Session. Importing this module must stay cheap."""

import io
import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slm_lab.core.allocation import keep_freed_memory
from slm_lab.core.errors import (
    CheckpointError,
    LabError,
    NonFiniteLossError,
    UnusableCheckpointError,
)
from slm_lab.core.files import open_own
from slm_lab.core.imports import importing
from slm_lab.core.limits import limit_reached
from slm_lab.core.parent import die_with_parent
from slm_lab.core.plugins import import_plugins
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.seeding import session_seeds

if TYPE_CHECKING:
    from slm_lab.experiment.actor import ActorSession
    from slm_lab.experiment.crew import MeetingPoint
    from slm_lab.experiment.pipe import Pipe
    from slm_lab.experiment.result import SessionResult
    from slm_lab.experiment.session import Session
    from slm_lab.spec.schema.spec import Spec

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class SessionTask:
    """What a Session's process needs to know."""

    spec: "Spec"
    run_dir: RunDir
    root_seed: int
    trial: int
    session: int
    num_sessions: int
    """Of the Trial."""
    resume: bool
    checked: bool = False
    imports: tuple[str, ...] = ()
    """Modules that register plug-ins."""
    workers: range = range(0)
    """The Sessions that train one agent together, this one among them; none: it trains alone."""
    common: "MeetingPoint | None" = None
    """Where they meet."""
    acts_into: "Pipe | None" = None
    """It only acts, and hands over what it plays; None: it learns."""
    replaces: str | None = None
    """How the process died that this one replaces."""
    begins_again: str | None = None
    """Why it is begun anew from its last checkpoint, with all that it trains in step with."""


def session_main(task: SessionTask, raw_board: Any, connection: Connection, parent: int) -> None:
    """The target of a spawned process: runs the Session, sends its SessionResult, exits.

    The exit code is 1 when the Session failed. The process dies with its parent, and leaves Ctrl-C
    to it: a terminal sends the signal to both, and the parent asks for the stop.
    """
    die_with_parent(parent)
    keep_freed_memory()
    board = Board(raw_board, task.num_sessions)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: board.request_stop())
    let_signals_in()
    board.write(task.session, phase=Phase.STARTING)
    result = run_session(task, board)
    connection.send(result)
    connection.close()
    sys.exit(1 if result.error is not None else 0)


def run_session(task: SessionTask, board: Board) -> "SessionResult":
    """Runs one Session in this process; a failure becomes part of the result."""
    from slm_lab.experiment.result import Ending, SessionResult

    paths = task.run_dir.session(task.trial, task.session)
    log = SessionLog(paths.log, delay=True)
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("slm_lab")
    root.setLevel(logging.INFO)
    root.addHandler(log)
    if task.begins_again is not None:
        root.warning("Session %d begins again: %s", task.session, task.begins_again)
    phases = {
        Ending.FINISHED: Phase.DONE,
        Ending.INTERRUPTED: Phase.STOPPED,
        Ending.FAILED: Phase.FAILED,
    }
    try:
        result = _run(task, board)
        board.write(task.session, phase=phases[result.ending])
    except Exception as error:
        limit = limit_reached(error)
        if isinstance(error, LabError):
            text = str(error) if limit is None else f"{error}: {limit}"
        else:
            text = limit or traceback.format_exc()
        root.error("Session %d failed: %s", task.session, traceback.format_exc())
        board.write(task.session, phase=Phase.FAILED)
        frame = int(board.clock_slots[task.session])
        diverged = isinstance(error, NonFiniteLossError)
        result = SessionResult(
            task.session,
            Ending.FAILED,
            frame,
            text.strip(),
            would_repeat=diverged or isinstance(error, CheckpointError),
            diverged=diverged,
            unusable=isinstance(error, UnusableCheckpointError),
        )
    finally:
        root.removeHandler(log)
        log.close()
    return result


class SessionLog(logging.FileHandler):
    """The text log. A full disk must not hide what the Session has to report."""

    def _open(self) -> io.TextIOWrapper:
        """The file, to add to; never what a link leads to."""
        descriptor = open_own(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return open(descriptor, self.mode, encoding="utf-8")  # type: ignore[return-value]

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record, if it can be written."""
        with suppress(OSError, LabError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Prints nothing: logging would print a traceback on the terminal."""

    def close(self) -> None:
        """Closes the file, whatever is left to be written."""
        with suppress(OSError):
            super().close()


def _run(task: SessionTask, board: Board) -> "SessionResult":
    with importing():
        from slm_lab.agent.net.device import take_turns
        from slm_lab.experiment.arithmetic import set_arithmetic

        import_plugins(task.imports)
    set_arithmetic(task.spec.meta.threads)
    if any(net.gpu for net in task.spec.agent.nets.values()):
        take_turns(task.session)
    session = _learning(task, board) if task.acts_into is None else _acting(task, board)
    try:
        return session.run()
    finally:
        session.close()


def _learning(task: SessionTask, board: Board) -> "Session":
    with importing():
        from slm_lab.experiment.session import Session

    crew = None
    if task.common is not None:
        crew = task.common.crew(board.part(task.workers), task.workers.index(task.session))
    return Session(
        task.spec,
        task.session,
        session_seeds(task.root_seed, task.trial, task.session),
        task.run_dir.session(task.trial, task.session),
        board,
        task.resume,
        task.checked,
        crew=crew,
        replaces=task.replaces,
    )


def _acting(task: SessionTask, board: Board) -> "ActorSession":
    """The first actor has the seeds that a Session in the learner's place would act with.

    One that replaces another, or acts in a run that goes on, plays other episodes.
    """
    with importing():
        from slm_lab.experiment.actor import ActorSession

    assert task.acts_into is not None
    actor = task.workers.index(task.session) - 1
    if task.replaces is not None:
        logging.getLogger(__name__).warning("actor %d is replaced: %s", actor, task.replaces)
    own_board = board.part(task.workers)
    slots = own_board.clock_slots
    frame = int(slots[0] + slots[1 + actor])
    seeds = session_seeds(task.root_seed, task.trial, task.session - 1, frame)
    return ActorSession(task.spec, task.session, seeds, own_board, actor, task.acts_into)


def let_signals_in() -> None:
    """Undoes the mask under which a process was started, once its handlers are in place."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
