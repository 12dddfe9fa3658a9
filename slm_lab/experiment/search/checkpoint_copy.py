"""The checkpoints of a trial as those of another, and their end."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from slm_lab.analysis.atomic import write_atomically
from slm_lab.experiment.manifest import (
    Manifest,
    pending_path,
    previous_path,
    read_manifest,
)
from slm_lab.experiment.run_dir import RunDir, SessionPaths
from slm_lab.spec.schema.spec import Spec

TRIES = 20
"""How often the checkpoint of a trial that goes on may be replaced while it is copied."""


def copy_checkpoints(run_dir: RunDir, spec: Spec, donor: int, trial: int) -> int | None:
    """Gives `trial`, which does not run, the newest checkpoint of `donor`, with the rows up to it;
    returns its frame, None where not all Sessions of `donor` have one yet."""
    sessions = range(spec.meta.num_sessions)
    theirs = [run_dir.session(donor, s) for s in sessions if not spec.meta.is_actor(s)]
    ours = [run_dir.session(trial, s) for s in sessions if not spec.meta.is_actor(s)]
    if any(read_manifest(paths.manifest) is None for paths in theirs):
        return None
    manifests = [_copied(source, target) for source, target in zip(theirs, ours, strict=True)]
    for paths in ours:
        previous_path(paths.manifest).unlink(missing_ok=True)  # of its own past, which is no more
        os.replace(pending_path(paths.manifest), paths.manifest)
    frames = [manifest.frame for manifest in manifests]
    crews = spec.meta.distributed in ("shared", "synced", "all_reduce")
    return sum(frames) if crews else max(frames)


def delete_models(run_dir: RunDir, trial: int) -> None:
    """Deletes the checkpoints of a trial that has ended."""
    for path in list(run_dir.session(trial, 0).models.glob(f"{run_dir.trial_prefix(trial)}_s*")):
        path.unlink(missing_ok=True)


def _copied(source: SessionPaths, target: SessionPaths) -> Manifest:
    """The manifest of the copies, which waits for those of the other Sessions."""
    for _ in range(TRIES - 1):
        try:
            return _copy(source, target)
        except FileNotFoundError:  # a newer one has taken its place meanwhile
            continue
    return _copy(source, target)


def _copy(source: SessionPaths, target: SessionPaths) -> Manifest:
    content = source.manifest.read_text()
    manifest = read_manifest(source.manifest)
    if manifest is None or source.manifest.read_text() != content:
        raise FileNotFoundError(source.manifest)
    for path, copy in _files(source, target, manifest):
        copy.unlink(missing_ok=True)
        shutil.copyfile(path, copy)
    for name, extent in manifest.rows.items():  # what follows was never the trial's own
        os.truncate(target.info / name.replace(source.prefix, target.prefix, 1), extent.size)
    renamed = json.loads(content.replace(f'"{source.prefix}_', f'"{target.prefix}_'))
    write_atomically(pending_path(target.manifest), json.dumps(renamed).encode())
    return manifest


def _files(
    source: SessionPaths, target: SessionPaths, manifest: Manifest
) -> Iterator[tuple[Path, Path]]:
    names = [(source.models, target.models, name) for name in manifest.names]
    names += [(source.info, target.info, name) for name in manifest.rows]
    for folder, to, name in names:
        yield folder / name, to / name.replace(source.prefix, target.prefix, 1)
