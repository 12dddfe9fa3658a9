"""The list of files that makes a checkpoint; readable without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slm_lab.core.errors import CheckpointError

FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    frame: int
    serial: int
    """Counts the checkpoints of a Session, so that no file name is used twice."""
    rows: Mapping[str, int]
    """Name of each file of rows to the bytes of it that belong to the checkpoint; what follows
    was written later."""
    finished: bool
    """Whether the Session had come to its end."""
    files: Mapping[str, Mapping[str, Any]]
    """Part ("state", "best") to name, bytes and sha256 of its file."""

    def to_json(self) -> str:
        """The content of the manifest's file."""
        return json.dumps({"format": FORMAT, **vars(self)})


def manifest_path(folder: Path, prefix: str) -> Path:
    """Where the newest manifest of a process lies."""
    return folder / f"{prefix}_latest.json"


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at `path`, or None where nothing has been saved yet.

    Raises CheckpointError when it cannot be read or is of another format.
    """
    try:
        content = json.loads(path.read_text())
        version = content.pop("format", None)
        manifest = Manifest(**content) if version == FORMAT else None
        if manifest is not None:
            for file in manifest.files.values():
                Path(file["name"]), str(file["sha256"])
            for name, size in manifest.rows.items():
                Path(name), int(size)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error
    if manifest is None:
        raise CheckpointError(f"{path} has format {version}, this version reads {FORMAT}")
    return manifest
