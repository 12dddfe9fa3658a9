"""A run as callbacks of the command line see it."""

import os
import signal
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.records.run_record import RunRecord, trial_metrics


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
