"""A trial of a search in its own process, which starts and watches the trial's Sessions."""

import logging
import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from slm_lab.core.errors import LabError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import die_with_parent, importing, unblock_stop_signals
from slm_lab.parallel.processes import EXIT_SECONDS, SPAWN, end, start
from slm_lab.parallel.supervisor import STOP_SECONDS
from slm_lab.parallel.worker import SessionLog
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.intact import fall_back
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir

if TYPE_CHECKING:
    from slm_lab.spec.schema.spec import Spec
    from slm_lab.storage.result import TrialResult

DRAW_SECONDS = 10.0
"""Time limit of a trial for its graphs after its Sessions have ended, in seconds."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits the GPUs CUDA shows to a process."""


@final
@dataclass(frozen=True)
class TrialTask:
    """The arguments of a trial's process."""

    spec: "Spec"
    run_dir: RunDir
    root_seed: int
    trial: int
    resume: bool
    imports: tuple[str, ...]
    at_once: bool
    chance_file: Path
    one_of_many: bool = True
    """Whether other trials have files in the same folder."""


@final
@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended, as its process reports it."""

    ending: Ending
    metrics: Mapping[str, float | None]
    error: str | None = None
    would_repeat: bool = False
    """Whether a restart from the last checkpoint would fail in the same way."""


def trial_main(
    task: TrialTask,
    raw_board: Any,
    connection: Connection,
    parent: int,
    gpus: tuple[int, ...] | None,
) -> None:
    """The target of a spawned process: runs the Trial, sends its TrialEnd, exits.

    It dies with its parent. A terminal's Ctrl-C reaches neither it nor its Sessions. The parent
    requests a stop through the status board.
    """
    die_with_parent(parent)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_stop_signals()
    if gpus is not None:
        os.environ[VISIBLE] = ",".join(_visible(gpus))
    try:
        outcome = _run(task, StatusBoard(raw_board, task.spec.meta.num_sessions))
    except Exception as error:
        message = isinstance(error, LabError | OSError)
        text = str(error) if message else traceback.format_exc()
        outcome = TrialEnd(Ending.FAILED, {}, text, would_repeat=isinstance(error, LabError))
    connection.send(outcome)
    connection.close()


def _visible(gpus: tuple[int, ...]) -> list[str]:
    """The names of GPUs, by their indices among those visible to this process."""
    names = os.environ.get(VISIBLE, "").split(",")
    return [names[gpu] if names != [""] else str(gpu) for gpu in gpus]


def _run(task: TrialTask, board: StatusBoard) -> TrialEnd:
    import_plugins(task.imports)
    with importing():
        from slm_lab.experiment.trial import Trial

    if task.resume:
        _note_in_log(task, fall_back(task.spec, task.run_dir, task.trial))
    trial = Trial(
        task.spec,
        task.run_dir,
        task.root_seed,
        task.trial,
        resume=task.resume,
        imports=task.imports,
        board=board,
        at_once=task.at_once,
        chance_file=task.chance_file,
        one_of_many=task.one_of_many,
    )
    return _end_of(trial.run())


def _note_in_log(task: TrialTask, lines: Sequence[str]) -> None:
    """Writes warnings to the log of the first Session, because a trial has no terminal."""
    log = SessionLog(task.run_dir.session(task.trial, 0).log, delay=True)
    for line in lines:
        log.emit(logging.makeLogRecord({"msg": line, "levelno": logging.WARNING}))
    log.close()


def _end_of(result: "TrialResult") -> TrialEnd:
    from slm_lab.analysis.metrics import TRIAL_METRICS

    metrics = {name: getattr(result.metrics, name) for name in TRIAL_METRICS}
    failed = [s for s in result.failed if not s.lost_others] or list(result.failed)
    if failed:
        first = failed[0]
        text = f"Session {first.session}: {first.error}"
        again = any(session.would_repeat for session in failed)
        return TrialEnd(Ending.FAILED, metrics, text, again)
    if result.problem:
        return TrialEnd(Ending.FAILED, metrics, result.problem)
    ending = Ending.INTERRUPTED if result.interrupted else Ending.FINISHED
    return TrialEnd(ending, metrics)


@final
class TrialProcess:
    """The process of a running trial. `gpus` are its visible GPUs of this machine; None: all."""

    def __init__(self, task: TrialTask, gpus: tuple[int, ...] | None = None) -> None:
        self.spec = task.spec
        self.board = StatusBoard.allocate(SPAWN, task.spec.meta.num_sessions)
        self._began = time.monotonic()
        self._stopped_at: float | None = None
        self._receiver, sender = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(
            target=trial_main,
            args=(task, self.board.raw, sender, os.getpid(), gpus),
            name=f"trial-{task.trial}",
        )
        start(self._process)
        sender.close()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def frame(self) -> int:
        """The frames spent of its budget; with several trainings, the maximum."""
        meta, slots = self.spec.meta, self.board.clock_slots
        by_learner = meta.mode.has_learner
        spent = [
            slots[sessions.start] if by_learner else slots[sessions.start : sessions.stop].sum()
            for sessions in meta.trainings
        ]
        return int(max(spent))

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`, ready when the trial ends."""
        return [self._process.sentinel, self._receiver]

    def stop(self, user_waits: bool) -> None:
        """Makes its Sessions save and end."""
        self.board.request_stop(user_waits)
        if user_waits and self._stopped_at is None:
            self._stopped_at = time.monotonic()

    def end_late(self) -> None:
        """Kills the process if it hangs after the user's stop; it ends hung Sessions itself."""
        if self._stopped_at is None or self.board.saving.any():
            return
        if time.monotonic() - self._stopped_at > STOP_SECONDS + DRAW_SECONDS:
            self._process.kill()

    def kill(self) -> None:
        """Kills the process and its Sessions."""
        end(self._process)
        self._receiver.close()

    def take_end(self) -> TrialEnd | None:
        """The end of the trial, or None while it runs. Must not be called after an end."""
        if self._process.is_alive() and not self._receiver.poll():
            return None
        try:
            outcome: TrialEnd | None = self._receiver.recv() if self._receiver.poll() else None
        except (EOFError, OSError):
            outcome = None
        self._process.join(EXIT_SECONDS)
        code = self._process.exitcode
        self.kill()
        if outcome is not None:
            return outcome
        how = f"was killed by signal {-code}" if code is not None and code < 0 else "ended early"
        return TrialEnd(Ending.FAILED, {}, f"its process {how} (exit code {code})")
