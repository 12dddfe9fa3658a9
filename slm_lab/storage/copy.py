"""Copies a checkpoint of one Session to the files of another, in the same run folder or
a new one."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from slm_lab.core.files import write_atomically
from slm_lab.storage.manifest import Manifest, SavedFile, pending_path
from slm_lab.storage.run_dir import SessionPaths

File = TypeVar("File", bound=SavedFile)


def copy_checkpoint(
    manifest: Manifest, source: SessionPaths, target: SessionPaths
) -> None:
    """Copies the checkpoint `manifest` of `source`, and the rows up to it. The files of
    a checkpoint never change, so the copy shares their space on the disk where that is
    possible. The copy's manifest stays pending, see `complete`. Raises OSError."""
    for name in manifest.names:
        _link(source.models / name, target.models / _renamed(name, source, target))
    for name, extent in manifest.rows.items():
        copy = target.info / _renamed(name, source, target)
        copy.unlink(missing_ok=True)
        shutil.copyfile(source.info / name, copy)
        os.truncate(copy, extent.size)  # without the rows after the checkpoint
    copied = replace(
        manifest,
        rows={
            _renamed(name, source, target): extent
            for name, extent in manifest.rows.items()
        },
        files={
            part: _target_file(file, source, target)
            for part, file in manifest.files.items()
        },
        segments=tuple(
            _target_file(segment, source, target) for segment in manifest.segments
        ),
    )
    write_atomically(pending_path(target.manifest), copied.to_json().encode())


def complete(target: SessionPaths) -> None:
    """Makes a copied checkpoint the newest of `target`."""
    os.replace(pending_path(target.manifest), target.manifest)


def _link(file: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    try:
        os.link(file, copy)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        shutil.copyfile(file, copy)


def _target_file(file: File, source: SessionPaths, target: SessionPaths) -> File:
    return replace(file, name=_renamed(file.name, source, target))


def _renamed(name: str, source: SessionPaths, target: SessionPaths) -> str:
    return name.replace(source.prefix, target.prefix, 1)
