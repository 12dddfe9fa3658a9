"""Files of a run: replaced atomically, and never written through a symbolic link."""

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from slm_lab.core.errors import LabError, undone_on_failure
from slm_lab.core.text import printable

Stamp: TypeAlias = tuple[object, ...]
"""A value that changes when the files that it was made from change."""
TAIL_BYTES = 6000


def open_own(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`, opened with `flags`; O_CREAT creates it.
    Raises LabError if `path` is a symbolic link, OSError as `os.open`."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise link_error(path) from error
        raise


def new_file(path: Path) -> BinaryIO:
    """A file opened for writing and truncated. Raises as `open_own`."""
    return open(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


def open_file(path: Path) -> BinaryIO:
    """The file at `path`, opened for reading. Raises OSError, also for a folder, a pipe
    or a device: reading these may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file")
    return open(descriptor, "rb")


def read_file(path: Path) -> bytes:
    """The content of the file at `path`. Raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


def refuse_links(folder: Path) -> None:
    """Raises LabError if anything under `folder` is neither a regular file nor a
    folder."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                raise link_error(path)
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise LabError(
                    f"{path} is neither a file nor a folder; remove it to train here"
                )


def link_error(path: Path) -> LabError:
    """The error for a symbolic link at the place of a file to write."""
    return LabError(
        f"{path} is a symbolic link, and a run is never written through one; remove "
        "the link, or replace it by the file that it leads to"
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` atomically, so that no reader sees a partial file.
    Raises OSError with the name of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with undone_on_failure(lambda: temporary.unlink(missing_ok=True)):
            with new_file(temporary) as stream:
                stream.write(content)
            temporary.replace(path)
    except OSError as error:
        # The error of a full disk names no file. The user knows `path`, not the
        # temporary file.
        error.filename = str(path)
        raise


def write_json(path: Path, content: object) -> None:
    """Writes JSON data with `write_atomically`."""
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_file(file))
        if isinstance(content, dict):
            return content
    return {}


def may_be_read(folder: Path) -> bool:
    """Whether this user may list a folder and open what is in it."""
    return os.access(folder, os.R_OK | os.X_OK)


def folders_in(folder: Path) -> list[Path]:
    """The folders in `folder`, sorted; empty if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as inside:
        return sorted(folder / entry.name for entry in inside if entry.is_dir())
    return []


def unsafe_entries(folder: Path, parts: Sequence[str], root: Path) -> Iterator[str]:
    """Entries that readers of the folder and `parts` must not open: links out of
    `root`, pipes, devices."""
    for part in ("", *parts):
        if not is_inside(folder / part, root):
            yield f"{part or 'it'} is a link that leads out of {root}"
            continue
        with suppress(OSError), os.scandir(folder / part) as inside:
            for entry in inside:
                if entry.is_symlink() and not is_inside(Path(entry.path), root):
                    yield f"{entry.name} is a link that leads out of {root}"
                elif not entry.is_file() and not entry.is_dir():
                    yield f"{entry.name} is neither a file nor a folder"


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path leads into a folder, whose own links are resolved."""
    return Path(os.path.realpath(path)).is_relative_to(root)


def stamp_of(paths: Sequence[Path]) -> Stamp:
    """Inode, size and time of change of each file or folder; None if it is missing."""
    stamps: list[object] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def tail(path: Path) -> str:
    """The last whole lines of a text file, with control characters escaped."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, 0))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    text = text if size <= TAIL_BYTES else text.partition("\n")[2]
    return printable(text)
