"""Manifests: the list of files of a checkpoint; readable without torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.core.errors import CheckpointError
from slm_lab.core.files import read_file
from slm_lab.metrics.writer import Extent

FORMAT = 9
"""The format version of a run folder: its checkpoints, rows and records. It increases
with every change that a resumed run could not read. Each new run records it; only the
same format resumes."""
ABOUT_AGENTS = ("frame", "serial", "finished", "files")
"""The keys of an older manifest that are about the saved agents."""


@dataclass(frozen=True)
class SavedFile:
    """A file of a checkpoint."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Segment(SavedFile):
    """A file with the steps `first` to `end` − 1 of a memory."""

    first: int
    end: int


@dataclass(frozen=True)
class Manifest:
    """The files of a checkpoint."""

    frame: int
    serial: int
    """Counts the checkpoints of a Session, so that no file name is used twice."""
    rows: Mapping[str, Extent]
    """Name of each file of rows to its extent at the checkpoint."""
    finished: bool
    files: Mapping[str, SavedFile]
    """Part ("state", "best") to its file."""
    segments: tuple[Segment, ...]
    """The files with the steps of a replay memory, in loading order."""

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return {file.name for file in (*self.files.values(), *self.segments)}

    def to_json(self) -> str:
        """The content of the manifest file."""
        return json.dumps({"format": FORMAT, **asdict(self)})


def manifest_path(folder: Path, prefix: str) -> Path:
    """The path of a process's newest manifest."""
    return folder / f"{prefix}_latest.json"


def previous_path(manifest: Path) -> Path:
    """The path of the previous manifest, whose files are kept as well."""
    return manifest.with_name(manifest.name.replace("_latest.json", "_previous.json"))


def pending_path(manifest: Path) -> Path:
    """The path of a pending manifest, before it replaces the newest."""
    return manifest.with_suffix(".json.part")


class KeptManifest(NamedTuple):
    """A checkpoint that is kept for forks, beside the newest two."""

    path: Path
    total_frame: int
    """Frames of all Sessions of the training."""
    serial: int


def kept_path(manifest: Path, serial: int, total_frame: int) -> Path:
    """The path of a manifest that is kept for forks."""
    return manifest.with_name(
        manifest.name.replace("_latest.json", f"_kept_{serial:06d}_{total_frame}.json")
    )


def kept_manifests(folder: Path, prefix: str) -> list[KeptManifest]:
    """The manifests that are kept for forks, by age."""
    name = re.compile(rf"{re.escape(prefix)}_kept_(\d{{6,}})_(\d+)\.json")
    kept = [
        KeptManifest(path, total_frame=int(match[2]), serial=int(match[1]))
        for path in folder.glob("*_kept_*.json")
        if (match := name.fullmatch(path.name))
    ]
    return sorted(kept, key=lambda manifest: manifest.serial)


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at `path`, or None if nothing has been saved yet. From an older
    format it reads only what an evaluation needs; training rejects it earlier. Raises
    CheckpointError if it cannot be read or is of a newer format."""
    try:
        content = json.loads(read_file(path))
        if not isinstance(content, dict):
            raise ValueError(
                f"it must hold an object {{...}}, not {json.dumps(content)[:40]}"
            )
        version = content.pop("format", None)
        if not isinstance(version, int) or version > FORMAT:
            fix = ": update slm-lab" if isinstance(version, int) else ""
            raise ValueError(
                f"it has format {json.dumps(version)}, this version reads {FORMAT}{fix}"
            )
        if version != FORMAT:
            content = {
                "rows": {},
                "segments": [],
                **{key: content[key] for key in ABOUT_AGENTS},
            }
        return _manifest(content)
    except FileNotFoundError:
        return None
    except (
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
    ) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error


def _manifest(content: dict[str, Any]) -> Manifest:
    segments = tuple(Segment(**segment) for segment in content.pop("segments"))
    rows = {name: Extent(**extent) for name, extent in content.pop("rows").items()}
    files = {part: SavedFile(**file) for part, file in content.pop("files").items()}
    manifest = Manifest(**content, rows=rows, files=files, segments=segments)
    counts = [
        manifest.frame,
        manifest.serial,
        *(extent.size for extent in rows.values()),
    ]
    counts += [count for segment in segments for count in (segment.first, segment.end)]
    counts += [file.bytes for file in (*files.values(), *segments)]
    for number in counts:
        if not isinstance(number, int) or not 0 <= number < 2**63:
            raise ValueError(f"{number!r} is not a count")
    for name in [*manifest.names, *manifest.rows]:
        if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            raise ValueError(f"{name!r} must be the name of a file, without a folder")
    return manifest
