"""Main function of one Session's process. Importing this module must stay cheap."""

import io
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slm_lab.core import errors, process
from slm_lab.core.errors import limit_reached
from slm_lab.core.files import open_own
from slm_lab.core.plugins import import_plugins
from slm_lab.core.text import error_text
from slm_lab.parallel.task import SessionTask
from slm_lab.session.seeding import SessionSeeds, process_seeds
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.storage.manifest import read_manifest

if TYPE_CHECKING:
    from slm_lab.storage.result import SessionResult


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""The format of a line in the text log."""


def session_main(
    task: SessionTask, raw_status_board: Any, connection: Connection, parent: int
) -> None:
    """The target of a process: runs the Session, sends its SessionResult, exits. The
    exit code is 1 if the Session failed. The process dies with its parent."""
    process.die_with_parent(parent)
    process.keep_freed_memory()
    status_board = StatusBoard(raw_status_board, task.num_sessions)
    signal.signal(signal.SIGTERM, lambda *_: status_board.request_stop())
    process.ignore_terminal()
    status_board.write(task.session, phase=Phase.STARTING)
    result = run_session(task, status_board)
    process.kill_descendants()
    connection.send(result)
    connection.close()
    sys.exit(1 if result.error is not None else 0)


def run_session(task: SessionTask, status_board: StatusBoard) -> "SessionResult":
    """Runs one Session in this process; a failure becomes part of the result."""
    from slm_lab.storage.result import Ending, SessionResult

    log = SessionLog(task.paths.log, delay=True)
    log.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger("slm_lab")
    root.setLevel(os.environ.get(process.LOG_LEVEL, "INFO"))
    root.addHandler(log)
    if task.restarted_because is not None:
        root.warning("Session %d restarts: %s", task.session, task.restarted_because)
    phases = {
        Ending.FINISHED: Phase.DONE,
        Ending.INTERRUPTED: Phase.STOPPED,
        # the parent replaces it, or marks it as failed for good
        Ending.FAILED: Phase.WAITING,
    }
    try:
        result = _run(task, status_board)
        status_board.write(task.session, phase=phases[result.ending])
    except BaseException as error:  # an environment may raise anything
        limit = limit_reached(error)
        trace = error_text(error)
        if isinstance(error, errors.LabError):
            text = str(error) if limit is None else f"{error}: {limit}"
            text = "\n".join([text, *getattr(error, "__notes__", ())])
        else:
            text = limit or trace
        root.error("Session %d failed: %s", task.session, trace)
        status_board.write(task.session, phase=phases[Ending.FAILED])
        frame = int(status_board.clock_slots[task.session])
        diverged = isinstance(error, errors.NonFiniteLossError)
        result = SessionResult(
            task.session,
            Ending.FAILED,
            frame,
            text.strip(),
            would_repeat=diverged or isinstance(error, errors.CheckpointError),
            diverged=diverged,
            unusable=isinstance(error, errors.UnusableCheckpointError),
        )
    finally:
        root.removeHandler(log)
        log.close()
    return result


class SessionLog(logging.FileHandler):
    """The text log. A full disk must not hide the Session's own error."""

    @override
    def _open(self) -> io.TextIOWrapper:
        """Opens the file for appending; never follows a symbolic link."""
        descriptor = open_own(
            Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )
        return open(descriptor, self.mode, encoding="utf-8")  # type: ignore[return-value]

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, errors.LabError):
            super().emit(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        pass  # logging would print a traceback on the terminal

    @override
    def close(self) -> None:
        with suppress(OSError):
            super().close()


def note_in_log(file: Path, lines: Iterable[str]) -> None:
    """Adds warnings to the text log of a Session, from another process."""
    log = SessionLog(file, delay=True)
    log.setFormatter(logging.Formatter(FORMAT))
    for line in lines:
        log.emit(
            logging.makeLogRecord(
                {"msg": line, "levelname": "WARNING", "name": "slm_lab"}
            )
        )
    log.close()


def _seeds(task: SessionTask, status_board: StatusBoard) -> SessionSeeds:
    """The task's seeds. The seeds of global generators depend on the frame at which the
    Session begins. Their state is not saved, and with the same seeds a resume would
    repeat the first draws."""
    manifest = None
    if task.resume:
        manifest = read_manifest(task.paths.manifest)
    frame = (
        int(status_board.clock_slots[task.session])
        if manifest is None
        else manifest.frame
    )
    processes = process_seeds(task.root_seed, task.trial, task.session, frame)
    return replace(task.seeds, processes=processes)


def _run(task: SessionTask, status_board: StatusBoard) -> "SessionResult":
    with process.importing():
        from slm_lab.agent.device import assign_gpu
        from slm_lab.session.build import set_up_torch

        seeds = _seeds(task, status_board)
        process.seed_global_generators(seeds.processes.session)
        with process.printing_to(task.paths.log):
            import_plugins(task.imports)
    set_up_torch(task.spec.meta.threads)
    if task.program is None and any(net.gpu for net in task.spec.agent.nets.values()):
        assign_gpu(task.session)
    task = replace(task, spec=task.spec.of_session(task.trial, task.session))
    if task.program is not None:
        return task.program(task, status_board)
    with process.importing():
        from slm_lab.parallel.virtual.costs import keep_costs
        from slm_lab.parallel.virtual.simulation import lone_strategy
        from slm_lab.session.session import Session
    if task.make_strategy is not None:
        strategy = task.make_strategy(
            status_board.part(task.workers), task.workers.index(task.session)
        )
    else:
        strategy = lone_strategy(
            task.spec.meta, task.root_seed, status_board, task.session
        )
    session = Session(
        spec=task.spec,
        index=task.session,
        seeds=seeds,
        paths=task.paths,
        status_board=status_board,
        resume=task.resume,
        checked=task.checked,
        strategy=strategy,
        replaces=task.replaces,
        until=task.until,
    )
    with closing(session):
        result = session.run()
    keep_costs(task.paths, strategy.pace)
    return result
