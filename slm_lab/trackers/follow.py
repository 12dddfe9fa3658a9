"""The process of `--track`: it follows a run folder, and calls callbacks and
trackers.

It is a process of its own: a tracker that hangs, crashes or forks cannot touch a
training. It ends when the process that trains says so, or is gone."""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import STOP_SIGNALS
from slm_lab.core.text import error_summary
from slm_lab.records.run_record import RunRecord, trial_metrics
from slm_lab.storage.run_dir import RunDir
from slm_lab.trackers.callbacks import Callbacks, make_callback
from slm_lab.trackers.tracker import Tracker

TICK = 0.5
"""Seconds between two looks at what was written."""
LOG_TICK = 5.0
"""Seconds between two looks at the event log of a search."""


@final
class TrackedRun:
    """A run, or a trial of a search, that another process trains.

    It has the attributes of `slm_lab.Run` that a callback needs."""

    def __init__(self, record: RunRecord, trainer: int | None = None) -> None:
        """`trainer` is the process to stop. Raises SpecError if the spec cannot be
        read."""
        self.name = record.name
        self.spec = dict(record.spec)
        """The spec as the folder records it, with every default."""
        self.folder: Path = record.folder
        self.source = record.where
        """The name by which `slm_lab.load` finds it: the folder, or FOLDER:t3."""
        self._record = record
        self._trainer = trainer

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the Trial, see docs/metrics.md; empty until it has ended
        once."""
        return trial_metrics(self._record.run_dir, self._record.trial)

    def stop(self) -> None:
        """Requests a checkpoint and the end of the training, once."""
        if self._trainer is not None:
            os.kill(self._trainer, signal.SIGTERM)
            self._trainer = None

    def __fspath__(self) -> str:
        """Its `source`, so that it can be given where a run is asked for."""
        return self.source

    @override
    def __repr__(self) -> str:
        return f"<TrackedRun {self.name} in {self.source}>"


class Follower:
    """Calls the same callbacks for a run, or for every trial of a search."""

    def __init__(
        self, run_dir: RunDir, callbacks: list[Any], resumes: bool, trainer: int
    ) -> None:
        """Follows the run of the process `trainer`. If the run `resumes`, callbacks
        that are no trackers get only new rows."""
        self._run_dir = run_dir
        self._callbacks = callbacks
        self._resumes = resumes
        self._trainer = trainer
        self._trials: dict[int, tuple[Callbacks, TrackedRun]] = {}
        self._over: set[int] = set()
        """The trials that need no more calls."""
        self._log_due = 0.0
        self._ended_before = set[int]()
        if resumes and run_dir.is_search:
            self._ended_before = self._ended()

    def tick(self) -> None:
        """Calls back for what was written since the last call."""
        for number in self._run_dir.trials:
            if number not in self._trials and number not in self._over:
                self._follow(number)
        for called, run in list(self._trials.values()):
            called.tick(run)
        if self._run_dir.is_search and time.monotonic() >= self._log_due:
            self._log_due = time.monotonic() + LOG_TICK
            for number in self._ended() & self._trials.keys():
                self._end(number)

    def end(self) -> None:
        """Calls back for the rest, and for the end of each Trial."""
        self.tick()
        for number in list(self._trials):
            self._end(number)
        if self._run_dir.is_search:
            with suppress(LabError):  # no trial has begun
                best = RunRecord(self._run_dir).trial_at(None)
                for part in self._callbacks:
                    if isinstance(part, Tracker):
                        part.add_best(TrackedRun(best))

    def _follow(self, number: int) -> None:
        record = RunRecord(self._run_dir).trial_record(number)
        called = Callbacks(self._callbacks, sys.stdout)
        # its spec is not written yet, or damaged
        with suppress(LabError):
            run = TrackedRun(record, self._trainer)
            trackers = [x for x in self._callbacks if isinstance(x, Tracker)]
            has_ended = number in self._ended_before
            if has_ended and all(tracker.is_done(run) for tracker in trackers):
                self._over.add(number)
                return
            called.follow(record, skip=self._resumes)
            self._trials[number] = called, run

    def _end(self, number: int) -> None:
        called, run = self._trials.pop(number)
        self._over.add(number)
        called.tick(run)
        called.end(run)

    def _ended(self) -> set[int]:
        """The trials of a search that will not go on."""
        with suppress(LabError):
            states = RunRecord(self._run_dir).study_state.trials
            return {number for number, state in states.items() if state.status.is_over}
        return set()


def main() -> None:
    """The entry point. The standard input has a line with the request, and ends with
    the training. What the user should see goes to the standard output."""
    for number in STOP_SIGNALS:  # a job queue sends them to all; the rest is sent yet
        signal.signal(number, signal.SIG_IGN)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        import_plugins(request["imports"])
        callbacks = [make_callback(name) for name in request["trackers"]]
    except LabError as error:
        print(f"{error_summary(error)}; the training goes on", flush=True)
        return
    for part in callbacks:
        if isinstance(part, Tracker):
            part.stream = sys.stdout
            part.is_alone = True
    run_dir = RunDir(Path(request["folder"]), request["spec_name"])
    follower = Follower(run_dir, callbacks, request["resumes"], os.getppid())
    while not select.select([sys.stdin], [], [], TICK)[0]:
        follower.tick()
    follower.end()
