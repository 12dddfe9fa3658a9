"""Selects the checkpoint to resume from: the newest one with intact files.

The newest checkpoint and the previous one are kept. If the newest is damaged, the run
falls back to the previous one. Sessions that train one agent fall back together."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from slm_lab.core.errors import CheckpointError
from slm_lab.core.files import write_atomically
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import (
    Manifest,
    SavedFile,
    pending_path,
    previous_path,
    read_manifest,
)
from slm_lab.storage.run_dir import RunDir, SessionPaths

BEST = "best"
"""The part of a checkpoint that training does not need."""


def fall_back(spec: Spec, run_dir: RunDir, trial: int) -> list[str]:
    """Makes the newest intact checkpoint of each Session its newest one. Returns a line
    to report for each Session, or group of Sessions, that falls back. It reads every
    file, which takes about a second per gigabyte. Raises CheckpointError if a Session
    has checkpoints but none is intact."""
    meta = spec.meta
    lines: list[str] = []
    for sessions in meta.trainings:
        members = [
            run_dir.session(trial, session)
            for session in sessions
            if not meta.is_actor(session)
        ]
        if meta.mode.has_ranks or meta.simulate is not None:
            lines += settle(members)
            continue
        reports = {paths.prefix: settle([paths]) for paths in members}
        lines += [line for report in reports.values() for line in report]
        if meta.mode.lock_free:
            lines += settle([run_dir.shared_by_training(trial, sessions.start)])
            if any(reports.values()):
                lines += _step_back(
                    [paths for paths in members if not reports[paths.prefix]]
                )
    return lines


def settle(members: Sequence[SessionPaths]) -> list[str]:
    """Makes the newest checkpoint that is intact for all members the newest of each. A
    joint checkpoint is complete on all disks before it becomes any member's newest. So
    if it is one member's newest, the others have it too, possibly with a pending
    manifest. Returns and raises as `fall_back`."""
    saved = [_saved(paths) for paths in members]
    newest = max(checkpoints.newest for checkpoints in saved)
    common = set.intersection(*(set(checkpoints.manifests) for checkpoints in saved))
    if not common and not any(checkpoints.was_saved for checkpoints in saved):
        return []  # nothing, or a first joint checkpoint that was never complete
    problems = [
        problem
        for checkpoints in saved
        if (problem := checkpoints.problem(newest)) is not None
    ]
    for serial in sorted(
        (s for s in common if s <= newest or not newest), reverse=True
    ):
        faults = [
            what
            for checkpoints in saved
            for what in damage(checkpoints.paths, checkpoints.manifests[serial])
        ]
        if not faults:
            break
        problems += faults
    else:
        raise CheckpointError(
            f"{_names(members)}: no checkpoint is intact: {'; '.join(problems[:3])}; "
            "put back a copy, or start a new run"
        )
    lines = [line for checkpoints in saved for line in checkpoints.make_newest(serial)]
    if problems:
        frames = [checkpoints.manifests[serial].frame for checkpoints in saved]
        lines.append(f"{_names(members)} {_falls_back(frames)}: {problems[0]}")
    return lines


@final
@dataclass(frozen=True)
class _Saved:
    paths: SessionPaths
    manifests: Mapping[int, Manifest]
    """The manifests by serial."""
    newest: int
    """The serial of its newest checkpoint; 0: it cannot be read."""
    unreadable: str | None
    """Why its newest manifest cannot be read."""
    was_saved: bool

    def problem(self, newest: int) -> str | None:
        """Why it lacks the checkpoint `newest`, the newest of any Session."""
        if self.unreadable or newest in self.manifests:
            return self.unreadable
        if newest == 0:
            return f"{self.paths.manifest} is missing"
        return (
            f"{self.paths.manifest} is not of the same checkpoint as those of the "
            "other ranks: files of the run were removed or replaced"
        )

    def make_newest(self, serial: int) -> list[str]:
        """Makes its checkpoint `serial` the newest; returns lines to report on the best
        agent. If the best's file is damaged, another checkpoint's replaces it, or
        none."""
        manifest = self.manifests[serial]
        lines = []
        problem = self._damaged_best(manifest)
        if problem is not None:
            others = [m for m in self.manifests.values() if BEST in m.files]
            intact = [m.files[BEST] for m in others if self._damaged_best(m) is None]
            files = {
                part: file for part, file in manifest.files.items() if part != BEST
            }
            if intact:
                files[BEST] = intact[0]
            manifest = replace(manifest, files=files)
            instead = "the next better one is saved"
            if intact:
                instead = "the one before it stays"
            lines.append(
                f"{self.paths.prefix}: the best agent is lost, {instead}: {problem}"
            )
        _make_newest(self.paths, manifest)
        return lines

    def _damaged_best(self, manifest: Manifest) -> str | None:
        file = manifest.files.get(BEST)
        if file is None:
            return None
        return _misfit(self.paths.models / file.name, file)


def _saved(paths: SessionPaths) -> _Saved:
    manifests: dict[int, Manifest] = {}
    newest = 0
    unreadable = None
    for place in (
        previous_path(paths.manifest),
        pending_path(paths.manifest),
        paths.manifest,
    ):
        is_newest = place == paths.manifest
        try:
            manifest = read_manifest(place)
        # the newest checkpoint does not need the others
        except CheckpointError as error:
            unreadable = None
            if is_newest:
                unreadable = str(error)
            continue
        if manifest is not None:
            manifests[manifest.serial] = manifest
            newest = 0
            if is_newest:
                newest = manifest.serial
    was_saved = paths.manifest.exists() or previous_path(paths.manifest).exists()
    return _Saved(
        paths=paths,
        manifests=manifests,
        newest=newest,
        unreadable=unreadable,
        was_saved=was_saved,
    )


def damage(paths: SessionPaths, manifest: Manifest) -> Iterator[str]:
    """Yields what is wrong with the files that training needs."""
    parts = [file for part, file in manifest.files.items() if part != BEST]
    for file in (*manifest.segments, *parts):
        problem = _misfit(paths.models / file.name, file)
        if problem is not None:
            yield problem
    for name, extent in manifest.rows.items():
        problem = extent.misfit(paths.info / name)
        if problem is not None:
            yield problem


def _misfit(path: Path, file: SavedFile) -> str | None:
    try:
        if path.stat().st_size != file.bytes:
            return (
                f"{path} is damaged: it has {path.stat().st_size} bytes of {file.bytes}"
            )
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if digest == file.sha256:
        return None
    return f"{path} is damaged: its checksum does not match"


def _make_newest(paths: SessionPaths, manifest: Manifest) -> None:
    content = manifest.to_json().encode()
    if not paths.manifest.is_file() or paths.manifest.read_bytes() != content:
        write_atomically(paths.manifest, content)
    pending_path(paths.manifest).unlink(missing_ok=True)


def _step_back(workers: Sequence[SessionPaths]) -> list[str]:
    """Makes workers with intact checkpoints fall back together with the others of their
    training. Only one worker's checkpoint holds the shared state."""
    lines = []
    for paths in workers:
        newest = read_manifest(paths.manifest)
        previous = read_manifest(previous_path(paths.manifest))
        if newest is None or previous is None or previous.serial >= newest.serial:
            continue
        if not any(damage(paths, previous)):
            _make_newest(paths, previous)
            lines.append(
                f"{paths.prefix} {_falls_back([previous.frame])}, with the others"
            )
    return lines


def _names(members: Sequence[SessionPaths]) -> str:
    if len(members) == 1:
        return members[0].prefix
    return f"{members[0].prefix} to {members[-1].prefix}"


def _falls_back(frames: Sequence[int]) -> str:
    if len(frames) == 1:
        return f"falls back to the checkpoint at frame {frames[0]:,}"
    return f"fall back to the checkpoint at frame {sum(frames):,} of all"
