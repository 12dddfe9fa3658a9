"""Deletes run folders that a user no longer needs."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from slm_lab.core.errors import LabError
from slm_lab.core.files import refuse_links
from slm_lab.records.lock import RunLock
from slm_lab.records.overview import Overview, overview_of
from slm_lab.records.run_record import RunStatus
from slm_lab.storage.run_dir import runs_in


def selected(
    data_dir: Path,
    dev: bool = False,
    failed: bool = False,
    older: timedelta | None = None,
) -> list[Overview]:
    """The dev runs and the failed runs in `data_dir`, as asked for, or all runs. With
    `older` only runs older than that. Leaves out runs that train, and folders that are
    links or have links in them."""
    runs = [overview_of(run) for run in runs_in(data_dir) if not _has_links(run.root)]
    if dev or failed:
        is_failed = None
        if failed:
            is_failed = RunStatus.FAILED
        runs = [run for run in runs if (dev and run.is_dev) or run.status is is_failed]
    ended = [run for run in runs if run.status is not RunStatus.TRAINING]
    return [run for run in ended if older is None or _age(run) > older]


def delete(
    data_dir: Path, runs: list[Overview]
) -> Iterator[tuple[Overview, str | None]]:
    """Deletes run folders; yields each, with the reason if it is kept: it trains, or
    has links."""
    for run in runs:
        folder = data_dir / run.run
        reason = None
        try:
            lock = RunLock(folder)
            try:
                shutil.rmtree(folder)
            finally:
                lock.release()
        except LabError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{error.strerror}: {error.filename or folder}"
        yield run, reason


def _has_links(folder: Path) -> bool:
    try:
        refuse_links(folder)
    except LabError:
        return True
    return folder.is_symlink()


def _age(run: Overview) -> timedelta:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(run.started)
    except (ValueError, TypeError):
        return timedelta()
