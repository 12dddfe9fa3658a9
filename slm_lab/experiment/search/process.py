"""A trial of a search in a process of its own, which starts and watches the trial's Sessions."""

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
from slm_lab.core.imports import importing
from slm_lab.core.parent import die_with_parent
from slm_lab.core.plugins import import_plugins
from slm_lab.experiment.intact import fall_back
from slm_lab.experiment.launch.processes import EXIT_SECONDS, SPAWN, STOP_SECONDS, end, start
from slm_lab.experiment.progress import Board
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.worker import SessionLog, let_signals_in

if TYPE_CHECKING:
    from slm_lab.experiment.result import TrialResult
    from slm_lab.spec.schema.spec import Spec

DRAW_SECONDS = 10.0
"""What a trial may take for its graphs once its Sessions have ended."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""By which CUDA is told of the GPUs of a process."""


@final
@dataclass(frozen=True)
class TrialTask:
    """What the process of a trial needs to know."""

    spec: "Spec"
    run_dir: RunDir
    root_seed: int
    trial: int
    resume: bool
    imports: tuple[str, ...]
    at_once: bool
    chance_file: Path
    one_of_many: bool = True
    """Whether others have their files in the same folder."""


@final
@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended, as its process reports it."""

    ending: Ending
    metrics: Mapping[str, float | None]
    error: str | None = None
    would_repeat: bool = False
    """Whether the same would happen again from the last checkpoint on."""


def trial_main(
    task: TrialTask,
    raw_board: Any,
    connection: Connection,
    parent: int,
    gpus: tuple[int, ...] | None,
) -> None:
    """The target of a spawned process: runs the Trial, sends its TrialEnd, exits.

    It dies with its parent. A terminal's Ctrl-C does not reach it, nor its Sessions: the parent
    asks for the stop through the board.
    """
    die_with_parent(parent)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    let_signals_in()
    if gpus is not None:
        os.environ[VISIBLE] = ",".join(_visible(gpus))
    try:
        outcome = _run(task, Board(raw_board, task.spec.meta.num_sessions))
    except Exception as error:
        told = isinstance(error, LabError | OSError)
        text = str(error) if told else traceback.format_exc()
        outcome = TrialEnd(Ending.FAILED, {}, text, would_repeat=isinstance(error, LabError))
    connection.send(outcome)
    connection.close()


def _visible(gpus: tuple[int, ...]) -> list[str]:
    """The names of GPUs by their places among those that this process may see."""
    names = os.environ.get(VISIBLE, "").split(",")
    return [names[gpu] if names != [""] else str(gpu) for gpu in gpus]


def _run(task: TrialTask, board: Board) -> TrialEnd:
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
    """In that of the first Session: a trial has no screen."""
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
    """A trial that runs. `gpus` are those of the machine that it may see; None: all."""

    def __init__(self, task: TrialTask, gpus: tuple[int, ...] | None = None) -> None:
        self.spec = task.spec
        self.board = Board.allocate(SPAWN, task.spec.meta.num_sessions)
        self._began = time.monotonic()
        self._stopped_at: float | None = None
        self._ours, theirs = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(
            target=trial_main,
            args=(task, self.board.raw, theirs, os.getpid(), gpus),
            name=f"trial-{task.trial}",
        )
        start(self._process)
        theirs.close()

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    @property
    def frame(self) -> int:
        """What it has spent of its budget; of several trainings the one that is furthest."""
        meta, slots = self.spec.meta, self.board.clock_slots
        by_learner = meta.distributed == "actor_learner"
        spent = [
            slots[crew.start] if by_learner else slots[crew.start : crew.stop].sum()
            for crew in meta.trainings
        ]
        return int(max(spent))

    @property
    def waitables(self) -> list[Any]:
        """What becomes ready when it ends."""
        return [self._process.sentinel, self._ours]

    def stop(self, user_waits: bool) -> None:
        """Has its Sessions save and end."""
        self.board.request_stop(user_waits)
        if user_waits and self._stopped_at is None:
            self._stopped_at = time.monotonic()

    def end_late(self) -> None:
        """Kills it where it has hung since the user's stop; its own Sessions it ends itself."""
        if self._stopped_at is None or self.board.saving.any():
            return
        if time.monotonic() - self._stopped_at > STOP_SECONDS + DRAW_SECONDS:
            self._process.kill()

    def kill(self) -> None:
        """Ends it, and with it its Sessions, at once."""
        end(self._process)
        self._ours.close()

    def take_end(self) -> TrialEnd | None:
        """Its end; None as long as it runs. Not to be called after that."""
        if self._process.is_alive() and not self._ours.poll():
            return None
        try:
            outcome: TrialEnd | None = self._ours.recv() if self._ours.poll() else None
        except (EOFError, OSError):
            outcome = None
        self._process.join(EXIT_SECONDS)
        code = self._process.exitcode
        self.kill()
        if outcome is not None:
            return outcome
        how = f"was killed by signal {-code}" if code is not None and code < 0 else "ended early"
        return TrialEnd(Ending.FAILED, {}, f"its process {how} (exit code {code})")
