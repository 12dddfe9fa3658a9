"""Deletes run folders that a user no longer needs."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import final

from slm_lab.core.errors import LabError
from slm_lab.experiment.runs.summary import RunStatus, RunSummary, summary_of
from slm_lab.storage.lock import RunLock
from slm_lab.storage.run_dir import runs_in


@final
@dataclass(frozen=True)
class Selection:
    """Which runs to delete: dev runs, failed ones, or both; with `older`, only those of before."""

    dev: bool = False
    failed: bool = False
    older: timedelta | None = None

    def fits(self, run: RunSummary) -> bool:
        """Whether a run is selected. One that is training never is."""
        if run.status is RunStatus.TRAINING:
            return False
        kinds = (self.dev and run.is_dev, self.failed and run.status is RunStatus.FAILED)
        if (self.dev or self.failed) and not any(kinds):
            return False
        return self.older is None or _age(run) > self.older


def selected(data_dir: Path, selection: Selection) -> list[RunSummary]:
    """The selected runs in `data_dir`. Leaves out folders that are links."""
    runs = (summary_of(run) for run in runs_in(data_dir) if not run.root.is_symlink())
    return [run for run in runs if selection.fits(run)]


def delete(data_dir: Path, runs: list[RunSummary]) -> Iterator[tuple[RunSummary, str | None]]:
    """Deletes run folders; yields each, with the reason if it is kept.

    Keeps a run that has begun to train since, and one with links in it.
    """
    for run in runs:
        folder = data_dir / run.run
        try:
            lock = RunLock(folder)
        except (LabError, OSError) as error:
            yield run, str(error)
            continue
        try:
            shutil.rmtree(folder)
        except OSError as error:
            yield run, f"{error.strerror}: {error.filename}"
        else:
            yield run, None
        finally:
            lock.release()


def _age(run: RunSummary) -> timedelta:
    """Zero if the start is unknown."""
    try:
        return datetime.now(UTC) - datetime.fromisoformat(run.started)
    except (ValueError, TypeError):
        return timedelta()
