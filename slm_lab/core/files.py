"""Files of a run: replaced atomically, and never written through a symbolic link."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from slm_lab.core.errors import LabError


def open_own(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`, opened with `flags`; O_CREAT creates it. Raises LabError
    if `path` is a symbolic link, OSError as `os.open`."""
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
    """The file at `path`, opened for reading. Raises OSError, also for a folder, a pipe or a
    device: reading these may never end."""
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
    """Raises LabError if anything under `folder` is neither a regular file nor a folder."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                raise link_error(path)
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise LabError(f"{path} is neither a file nor a folder; remove it to train here")


def link_error(path: Path) -> LabError:
    """The error for a symbolic link at the place of a file to write."""
    return LabError(
        f"{path} is a symbolic link, and a run is never written through one; remove the link, or "
        "replace it by the file that it leads to"
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` atomically, so that no reader sees a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with new_file(temporary) as stream:
            stream.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: object) -> None:
    """Writes JSON data with `write_atomically`."""
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")
