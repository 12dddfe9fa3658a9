"""The runs of a data folder; each overview is kept until a file of its run changes."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import NamedTuple, final

from slm_lab.core.errors import UsageError
from slm_lab.core.files import Stamp, folders_in, may_be_read, stamp_of, unsafe_entries
from slm_lab.records.comparison import ComparisonRecord
from slm_lab.records.lock import is_locked
from slm_lab.records.overview import (
    Overview,
    damaged_overview,
    overview_of,
    overview_of_comparison,
)
from slm_lab.records.run_record import RowCache, RunRecord, RunStatus
from slm_lab.storage.run_dir import FOLDERS, RunDir

PARTS = (*FOLDERS, "video")
"""The folders of a run of which files are read or served."""
SEARCH_PAGE = "*_experiment_graph.html"
"""The page that a search draws, by its name."""
PAUSE = 1.0
"""Seconds for which a look at the folder is good, however many pages are open."""


@final
@dataclass(frozen=True)
class CatalogEntry:
    """A run, a search or a comparison, maybe damaged."""

    name: str
    """Its path in the data folder; a run of a comparison lies in the comparison's
    folder."""
    folder: Path
    run: RunDir | None
    """The folder of a run or search; None for a comparison, and if nothing can be
    read."""
    comparison: ComparisonRecord | None
    """The comparison, if it is one."""
    overview: Overview
    stamp: Stamp
    row_cache: RowCache
    """The rows that any page has read."""
    problem: str = ""

    def trial(self, number: str = "") -> RunRecord:
        """The Trial of this number, or the run's, or a search's best so far. Raises
        LabError."""
        if self.run is None or self.problem:
            raise UsageError(self.problem or "a comparison has no Trial")
        record = RunRecord(self.run, row_cache=self.row_cache)
        return record.trial_at(int(number) if number else None)

    @property
    def pages(self) -> list[Path]:
        """The page that a search or a comparison has drawn; empty before that, and for
        a run. Raises any exception if the plan of a comparison is damaged."""
        pattern = SEARCH_PAGE
        if self.comparison is not None:
            pattern = self.comparison.kind.page_name("*")
        return sorted(self.folder.glob(pattern))

    @property
    def offline_files(self) -> list[Path]:
        """The pages and tables that a browser can open without the lab; none of a
        damaged run."""
        if self.problem:
            return []
        places = ("*.html", "graph/*.html", "*.csv")
        return [file for place in places for file in sorted(self.folder.glob(place))]


def outermost(entry: CatalogEntry, entries: Mapping[str, CatalogEntry]) -> CatalogEntry:
    """The run in which a run lies, and of forks the first one; else the run itself."""
    outer = entries.get(entry.name.rpartition("/")[0], entry)
    while outer.overview.forked_from in entries:
        outer = entries[outer.overview.forked_from]
    return outer


class _Look(NamedTuple):
    """The content of a folder, which changes only with the times of its folders."""

    stamp: Stamp
    is_run: bool = False
    run: RunDir | None = None
    comparison: ComparisonRecord | None = None
    rows: tuple[Path, ...] = ()
    inside: tuple[Path, ...] = ()
    """Folders that may be runs of it."""
    problem: str = ""


@final
class Catalog:
    """Every run in a data folder, by name."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir.resolve()
        self._lock = RLock()
        self._looks: dict[str, _Look] = {}
        self._entries: dict[str, CatalogEntry] = {}
        self._due = 0.0
        self._row_cache = RowCache()

    def entries(self) -> dict[str, CatalogEntry]:
        """The runs of now."""
        with self._lock:
            if time.monotonic() >= self._due:
                before = self._looks
                self._looks = {}
                entries = [
                    entry
                    for folder in folders_in(self.root)
                    for entry in self._at(folder, before)
                ]
                self._entries = {entry.name: entry for entry in entries}
                self._due = time.monotonic() + PAUSE
            return self._entries

    def inside(self, name: str) -> list[CatalogEntry]:
        """The runs of a comparison, or those that confirm a search."""
        entries = self.entries().values()
        return [entry for entry in entries if entry.name.startswith(f"{name}/")]

    def _at(self, folder: Path, before: dict[str, _Look]) -> list[CatalogEntry]:
        name = os.fsencode(folder.relative_to(self.root)).decode(
            errors="backslashreplace"
        )
        look = before.get(name)
        stamp = stamp_of([folder, *(folder / part for part in PARTS)])
        if look is None or look.stamp != stamp:
            look = _look(folder, self.root, stamp)
        self._looks[name] = look
        if not look.is_run:
            return []
        inside = [entry for place in look.inside for entry in self._at(place, before)]
        is_training = not look.problem and is_locked(folder)
        stamp = (
            *stamp,
            is_training,
            *stamp_of(look.rows),
            *(run.stamp for run in inside),
        )
        entry = self._entries.get(name)
        if entry is None or is_training or entry.stamp != stamp:
            runs = [run.overview for run in inside]
            overview = replace(_overview(folder, look, runs, is_training), run=name)
            problem = look.problem
            if (
                not problem
                and overview.status is RunStatus.DAMAGED
                and not overview.env
            ):
                problem = "its spec file cannot be read"
            entry = CatalogEntry(
                name=name,
                folder=folder,
                run=look.run,
                comparison=look.comparison,
                overview=overview,
                stamp=stamp,
                row_cache=self._row_cache,
                problem=problem,
            )
        return [entry, *inside]


def _look(folder: Path, root: Path, stamp: Stamp) -> _Look:
    problem = next(unsafe_entries(folder, PARTS, root), "")
    run = RunDir.at(folder)
    problem = (
        problem if folder.name.isprintable() else "its name has control characters"
    )
    if not may_be_read(folder):
        return _Look(stamp, True, problem="it may not be read by this user")
    comparison = ComparisonRecord.at(folder)
    has_parts = any(os.path.isdir(folder / part) for part in ("info", "model"))
    if problem:
        return _Look(stamp, bool(run or comparison or has_parts), problem=problem)
    if run is not None:
        rows = sorted((folder / "info").glob(f"{run.prefix}_t*_session_df_*.csv"))
        inside = [place for place in folders_in(folder) if place.name not in PARTS]
        return _Look(
            stamp=stamp,
            is_run=True,
            run=run,
            rows=tuple(rows),
            inside=tuple(inside),
        )
    if comparison is not None:
        return _Look(
            stamp=stamp,
            is_run=True,
            comparison=comparison,
            inside=tuple(folders_in(folder)),
        )
    return _Look(stamp, has_parts, problem="it has no spec file, or several")


def _overview(
    folder: Path, look: _Look, runs: Sequence[Overview], is_training: bool
) -> Overview:
    with suppress(Exception):  # content that no run has written
        if look.run is not None:
            return overview_of(look.run)
        if look.comparison is not None:
            return overview_of_comparison(look.comparison, runs, is_training)
    return damaged_overview(folder)
