"""Copies checkpoints from one trial to another, and deletes those of a trial."""

import json
import os
import shutil

from slm_lab.core.files import write_atomically
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import (
    Manifest,
    pending_path,
    previous_path,
    read_manifest,
)
from slm_lab.storage.run_dir import RunDir, SessionPaths

TRIES = 20
"""Attempts at a copy. A running donor may replace its checkpoint during each of
them."""


def copy_checkpoints(run_dir: RunDir, spec: Spec, donor: int, trial: int) -> int | None:
    """Copies the newest checkpoint of `donor`, and the rows up to it, to `trial`, which
    must not run. Returns its frame, or None if a Session of `donor` has no checkpoint
    yet."""
    sessions = range(spec.meta.num_sessions)
    sources = [run_dir.session(donor, s) for s in sessions if not spec.meta.is_actor(s)]
    targets = [run_dir.session(trial, s) for s in sessions if not spec.meta.is_actor(s)]
    if any(read_manifest(paths.manifest) is None for paths in sources):
        return None
    frames = [_copy(*pair).frame for pair in zip(sources, targets, strict=True)]
    for paths in targets:
        # from before the copy: obsolete
        previous_path(paths.manifest).unlink(missing_ok=True)
        os.replace(pending_path(paths.manifest), paths.manifest)
    if spec.meta.mode.shares_budget:
        return sum(frames)
    return max(frames)


def delete_models(run_dir: RunDir, trial: int) -> None:
    """Deletes the checkpoints of an ended trial."""
    for path in list(
        run_dir.session(trial, 0).models.glob(f"{run_dir.trial_prefix(trial)}_s*")
    ):
        path.unlink(missing_ok=True)


def _copy(source: SessionPaths, target: SessionPaths, tries: int = TRIES) -> Manifest:
    """Copies one Session's checkpoint and returns the source's manifest. The copy's
    manifest stays pending until all Sessions are copied."""
    try:
        content = source.manifest.read_text()
        manifest = read_manifest(source.manifest)
        if manifest is None or source.manifest.read_text() != content:
            raise FileNotFoundError(source.manifest)
        names = [(source.models, target.models, name) for name in manifest.names]
        names += [(source.info, target.info, name) for name in manifest.rows]
        for folder, to, name in names:
            copy = to / name.replace(source.prefix, target.prefix, 1)
            copy.unlink(missing_ok=True)
            shutil.copyfile(folder / name, copy)
            if name in manifest.rows:  # without the donor's rows after the checkpoint
                os.truncate(copy, manifest.rows[name].size)
    except FileNotFoundError:  # the donor saved a newer checkpoint meanwhile
        if tries == 1:
            raise
        return _copy(source, target, tries - 1)
    renamed = json.loads(content.replace(f'"{source.prefix}_', f'"{target.prefix}_'))
    write_atomically(pending_path(target.manifest), json.dumps(renamed).encode())
    return manifest
