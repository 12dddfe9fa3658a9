"""The runs of a data folder; each summary is kept until a file of its run changes."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeAlias, final

from slm_lab.core.files import read_file
from slm_lab.experiment.compare.plan import PLAN_BLOCK, PLAN_FILE
from slm_lab.experiment.runs.summary import RunStatus, RunSummary, summary_of
from slm_lab.storage.lock import is_locked
from slm_lab.storage.run_dir import FOLDERS, RunDir

PARTS = (*FOLDERS, "video")
"""The folders of a run of which files are read or served."""
PAUSE = 1.0
"""Seconds for which a look at the folder is good, however many pages are open."""
_BLANK: dict[str, Any] = {
    **dict.fromkeys(("started", "name", "label", "note", "env", "mode"), ""),
    **dict.fromkeys(("budget", "final_return", "final_return_std", "frames_per_s", "seconds_left")),
    "run": "",
    "changed": (),
    "is_dev": False,
    "frames": 0,
    "seeds": 0,
    "bytes": 0,
    "status": RunStatus.DAMAGED,
}

Stamp: TypeAlias = tuple[object, ...]
"""Changes with what it was made from."""


@final
@dataclass(frozen=True)
class Entry:
    """A run, a search or a comparison, maybe damaged."""

    name: str
    """Its path in the data folder; a run of a comparison lies in the folder of that."""
    folder: Path
    run: RunDir | None
    """None for a comparison, and if nothing can be read."""
    summary: RunSummary
    stamp: Stamp
    problem: str = ""
    """Why nothing can be read."""


class _Look(NamedTuple):
    """What a folder holds, which changes only with the times of its folders."""

    stamp: Stamp
    is_run: bool = False
    run: RunDir | None = None
    plan: Path | None = None
    """Of a comparison."""
    rows: tuple[Path, ...] = ()
    inside: tuple[Path, ...] = ()
    """Folders that may be runs of it."""
    problem: str = ""


@final
class Library:
    """Every run in a data folder, by name."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir.resolve()
        self._lock = RLock()
        self._looks: dict[str, _Look] = {}
        self._entries: dict[str, Entry] = {}
        self._due = 0.0

    def entries(self) -> dict[str, Entry]:
        """The runs of now."""
        with self._lock:
            if time.monotonic() >= self._due:
                before, self._looks = self._looks, {}
                found = [
                    each for folder in _folders(self.root) for each in self._at(folder, before)
                ]
                self._entries = {each.name: each for each in found}
                self._due = time.monotonic() + PAUSE
            return self._entries

    def inside(self, name: str) -> list[Entry]:
        """The runs of a comparison, or those that confirm a search."""
        return [each for each in self.entries().values() if each.name.startswith(f"{name}/")]

    def _at(self, folder: Path, before: dict[str, _Look]) -> list[Entry]:
        """The run in a folder, then the runs inside of it."""
        name = str(folder)[len(str(self.root)) + 1 :]
        look, stamp = before.get(name), stamp_of([folder, *(folder / part for part in PARTS)])
        if look is None or look.stamp != stamp:
            look = _look(folder, self.root, stamp)
        self._looks[name] = look
        if not look.is_run:
            return []
        inside = [entry for each in look.inside for entry in self._at(each, before)]
        is_training = not look.problem and is_locked(folder)
        stamp = (*stamp, is_training, *stamp_of(look.rows), *(each.stamp for each in inside))
        entry = self._entries.get(name)
        if entry is None or is_training or entry.stamp != stamp:
            runs = [each.summary for each in inside]
            summary = replace(_summary(folder, look, runs, is_training), run=name)
            problem = look.problem or _UNREADABLE * (summary.status is RunStatus.DAMAGED)
            entry = Entry(name, folder, look.run, summary, stamp, problem)
        return [entry, *inside]


_UNREADABLE = "its spec file cannot be read"


def stamp_of(paths: Sequence[Path]) -> Stamp:
    """Inode, size and time of change of each file or folder; None where there is none."""
    found: list[object] = []
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
    return tuple(found)


def _folders(folder: Path) -> list[Path]:
    with suppress(OSError), os.scandir(folder) as inside:
        return sorted(folder / each.name for each in inside if each.is_dir())
    return []


def _look(folder: Path, root: Path, stamp: Stamp) -> _Look:
    problem, run = next(_unfit(folder, root), ""), RunDir.at(folder)
    plan = next(folder.glob(PLAN_FILE.format("*")), None)
    if problem:
        looks_like_one = run is not None or plan is not None or _has_parts(folder)
        return _Look(stamp, is_run=looks_like_one, problem=problem)
    if run is not None:
        rows = sorted((folder / "info").glob(f"{run.prefix}_t*_session_df_*.csv"))
        inside = [each for each in _folders(folder) if each.name not in PARTS]
        return _Look(stamp, True, run, None, tuple(rows), tuple(inside))
    if plan is not None:
        return _Look(stamp, True, None, plan, inside=tuple(_folders(folder)))
    return _Look(stamp, _has_parts(folder), problem="it has no spec file, or several")


def _has_parts(folder: Path) -> bool:
    return any((folder / part).is_dir() for part in ("info", "model"))


def _unfit(folder: Path, root: Path) -> Iterator[str]:
    """Why a folder is not read: links that lead out of the data folder, pipes, devices."""
    for part in ("", *PARTS):
        if not _is_inside(folder / part, root):
            yield f"{part or 'it'} is a link that leads out of the data folder"
            continue
        with suppress(OSError), os.scandir(folder / part) as inside:
            for each in inside:
                if each.is_symlink() and not _is_inside(Path(each.path), root):
                    yield f"{each.name} is a link that leads out of the data folder"
                elif not each.is_file() and not each.is_dir():
                    yield f"{each.name} is neither a file nor a folder"


def _is_inside(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


def _summary(
    folder: Path, look: _Look, runs: Sequence[RunSummary], is_training: bool
) -> RunSummary:
    if look.run is not None:
        with suppress(Exception):  # content that no run has written
            return summary_of(look.run)
    if look.plan is not None:
        with suppress(Exception):
            return _of_comparison(look.plan, runs, is_training)
    with suppress(OSError):
        when = datetime.fromtimestamp(folder.lstat().st_mtime, UTC).isoformat()
        return RunSummary(**_BLANK | {"status": RunStatus.DAMAGED, "started": when})
    return RunSummary(**_BLANK)


def _of_comparison(plan: Path, runs: Sequence[RunSummary], is_training: bool) -> RunSummary:
    """All its trainings together."""
    content = json.loads(read_file(plan))
    about, spec = content[PLAN_BLOCK], next(iter(content.values()))
    planned = len(about["variants"]) * len(about["seeds"])
    ended = [each for each in runs if each.status is RunStatus.DONE]
    status = RunStatus.DONE if len(ended) == planned else RunStatus.STOPPED
    status = RunStatus.FAILED if any(each.status is RunStatus.FAILED for each in runs) else status
    budget, frames = planned * spec["env"]["max_frame"], sum(each.frames for each in runs)
    speed = sum(each.frames_per_s or 0 for each in runs if each.status is RunStatus.TRAINING)
    known: dict[str, Any] = {
        "started": about["started"],
        "name": about["name"],
        "env": spec["env"]["name"],
        "mode": f"comparison, {len(ended)} of {planned} trainings",
        "status": RunStatus.TRAINING if is_training else status,
        "frames": frames,
        "budget": budget,
        "seeds": len(about["seeds"]),
        "frames_per_s": speed or None,
        "seconds_left": max(budget - frames, 0) / speed if is_training and speed else None,
        "bytes": sum(each.bytes for each in runs),
    }
    return RunSummary(**_BLANK | known)
