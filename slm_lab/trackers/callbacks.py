"""Functions that a user's program has called on what a training has written."""

import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any, TextIO, final

from slm_lab.core.errors import LabError, MissingExtraError, UsageError
from slm_lab.core.registry import Registry, import_failure
from slm_lab.env.extras import require
from slm_lab.records.progress import read_news
from slm_lab.records.run_record import RunRecord
from slm_lab.trackers.tracker import AnyRun, Tracker

EVENTS = ("on_row", "on_checkpoint", "on_end")


def _fault(part: object) -> str | None:
    """Why a part is no callback; None if it has some of the methods `EVENTS`."""
    is_one = any(callable(getattr(part, event, None)) for event in EVENTS)
    if is_one:
        return None
    return f"has none of the methods {', '.join(EVENTS)}"


CALLBACKS = Registry("callback", "slm_lab.callbacks", check=_fault)
"""The installed callbacks, and the lab's own trackers. They are classes or objects."""
CALLBACKS.register("wandb", None, "slm_lab.trackers.wandb:WandB")
CALLBACKS.register("mlflow", None, "slm_lab.trackers.mlflow:MLflow")
CALLBACKS.register("tensorboard", None, "slm_lab.trackers.tensorboard:TensorBoard")


@final
class Callbacks:
    """Calls a user's functions for the rows and checkpoints of a Trial.

    One that raises is reported once, with its traceback, and its object is not called
    again."""

    def __init__(
        self, objects: Sequence[Any] = (), stream: TextIO | None = None
    ) -> None:
        """Objects with some of the methods `EVENTS`, their classes, or names of
        installed ones. `stream` gets the reports, by default the standard error.
        Raises UsageError for other objects."""
        self._objects = [make_callback(part) for part in objects]
        self._stream = stream
        self._news: Iterator[tuple[Any, ...] | None] = iter(())
        self.thread: threading.Thread | None = None
        """The thread that runs a callback now."""

    def follow(self, trial: RunRecord, skip: bool) -> None:
        """Calls back for what `trial` writes; with `skip` not for what it has written
        before."""
        self._news = read_news(trial)
        for _ in iter(self._news.__next__, None) if skip else ():
            pass

    def tick(self, run: AnyRun) -> None:
        """Calls `on_row` for each new row, in order, then `on_checkpoint` for new
        checkpoints. Trackers send what they have not sent yet."""
        if self._objects:
            for event, *arguments in iter(self._news.__next__, None):
                self._call(event, run, *arguments)
        for part in self._objects:
            if isinstance(part, Tracker):
                part.flush(run)

    def end(self, run: AnyRun) -> None:
        """Calls `on_end`, and then nothing more."""
        self._call("on_end", run)
        self._objects = []

    def _call(self, event: str, run: AnyRun, *arguments: Any) -> None:
        for part in list(self._objects):
            callback = getattr(part, event, None)
            if callback is None:
                continue
            self.thread = threading.current_thread()
            try:
                # a callback may change its own row
                callback(run, *map(copy, arguments))
            except (Exception, SystemExit):
                self._objects.remove(part)
                stream = self._stream or sys.stderr
                traceback.print_exc(file=stream)
                print(
                    f"{event} raised this; {_name_of(part)} is switched off",
                    file=stream,
                )
            finally:
                self.thread = None


def check_trackers(names: Sequence[str]) -> None:
    """Raises UsageError for a name that `--track` does not know, MissingExtraError for
    a tracker whose library is not installed."""
    for name in names:
        try:
            part = CALLBACKS.load(name)
            if isinstance(part, type) and issubclass(part, Tracker):
                require(part.module, part.name)
        except MissingExtraError as error:
            raise MissingExtraError(f"--track {name}: {error}") from None
        except LabError as error:
            raise UsageError(f"--track {name}: {error}") from error


def make_callback(part: Any) -> Any:
    """The object of a callback: of a name, of a class, or itself. Raises UsageError."""
    try:
        kind = part
        if isinstance(part, str):
            kind = CALLBACKS.load(part)
        made = kind
        if isinstance(kind, type):
            made = kind()
    except Exception as error:
        raise UsageError(f"callbacks: {import_failure(error)}") from error
    fault = _fault(made)
    if fault is not None:
        raise UsageError(f"callbacks: {_name_of(made)} {fault}")
    return made


def _name_of(part: Any) -> str:
    """The text of the object, or the names of functions that came one by one."""
    if isinstance(part, SimpleNamespace):
        return ", ".join(vars(part))
    return repr(part)
