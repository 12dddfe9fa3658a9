"""The list of files that makes a checkpoint; readable without torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slm_lab.core.errors import CheckpointError
from slm_lab.core.files import read_file
from slm_lab.metrics.extent import Extent

FORMAT = 7
"""Of a run folder: of its checkpoints, its rows and its records. It changes with whatever a resumed
run could not read any more; each new run notes it, and no other format is resumed."""


@dataclass(frozen=True)
class Segment:
    """A file of the steps of a memory that are numbered `first` to `end` − 1."""

    first: int
    end: int
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    frame: int
    serial: int
    """Counts the checkpoints of a Session, so that no file name is used twice."""
    rows: Mapping[str, Extent]
    """Name of each file of rows to the part of it that belongs to the checkpoint."""
    finished: bool
    """Whether the Session had come to its end."""
    files: Mapping[str, Mapping[str, Any]]
    """Part ("state", "best") to name, bytes and sha256 of its file."""
    segments: tuple[Segment, ...]
    """What holds the steps of a memory that keeps many, in the order in which they are loaded."""

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return {str(f["name"]) for f in self.files.values()} | {s.name for s in self.segments}

    def to_json(self) -> str:
        """The content of the manifest's file."""
        return json.dumps({"format": FORMAT, **asdict(self)})


def manifest_path(folder: Path, prefix: str) -> Path:
    """Where the newest manifest of a process lies."""
    return folder / f"{prefix}_latest.json"


def previous_path(manifest: Path) -> Path:
    """Where the manifest before the newest lies, whose files are kept as well."""
    return manifest.with_name(manifest.name.replace("_latest.json", "_previous.json"))


def pending_path(manifest: Path) -> Path:
    """Where a manifest waits until it may take the place of the newest."""
    return manifest.with_suffix(".json.part")


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at `path`, or None where nothing has been saved yet.

    One of an older format is read as far as an evaluation needs it; no training comes this far.
    Raises CheckpointError when it cannot be read or is of a newer format.
    """
    try:
        content = json.loads(read_file(path))
        if not isinstance(content, dict):
            raise ValueError(f"it must hold an object {{...}}, not {json.dumps(content)[:40]}")
        version = content.pop("format", None)
        if not isinstance(version, int) or version > FORMAT:
            raise ValueError(f"it has format {json.dumps(version)}, this version reads {FORMAT}")
        return _manifest(content if version == FORMAT else _in_present_form(content))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error


def _manifest(content: dict[str, Any]) -> Manifest:
    segments = tuple(Segment(**segment) for segment in content.pop("segments"))
    for segment in segments:
        range(segment.first, segment.end)
    rows = {name: Extent(**extent) for name, extent in content.pop("rows").items()}
    manifest = Manifest(**content, rows=rows, segments=segments)
    for number in (manifest.frame, manifest.serial):
        if not isinstance(number, int) or not 0 <= number < 2**63:
            raise ValueError(f"{number!r} is no count")
    for file in manifest.files.values():
        str(file["sha256"])
    for extent in rows.values():
        range(extent.size)
    for name in [*manifest.names, *manifest.rows]:
        if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            raise ValueError(f"{name!r} must be the name of a file, without a folder")
    return manifest


def _in_present_form(content: dict[str, Any]) -> dict[str, Any]:
    """What an older manifest says of the agents that were saved."""
    kept = ("frame", "serial", "finished", "files")
    return {"rows": {}, "segments": [], **{key: content[key] for key in kept}}
