"""Opening files of a run: never written through a link that leads out of its folder."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from slm_lab.core.errors import LabError


def open_own(path: Path, flags: int) -> int:
    """A descriptor of the file at `path`, opened with `flags` and made where they say O_CREAT.

    Raises LabError where `path` is a symbolic link, OSError as `os.open`.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise link_error(path) from error
        raise


def new_file(path: Path) -> BinaryIO:
    """A file to write from its beginning. Raises as `open_own`."""
    return open(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


def read_file(path: Path) -> bytes:
    """What the file at `path` holds. Raises OSError, also for a pipe or a device: reading one of
    these may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        return file.read()


def refuse_links(folder: Path) -> None:
    """Raises LabError where something under `folder` is neither a file nor a folder of its own."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                raise link_error(path)
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise LabError(f"{path} is neither a file nor a folder; remove it to train here")


def link_error(path: Path) -> LabError:
    """What to say of a symbolic link where a file is to be written."""
    return LabError(
        f"{path} is a symbolic link, and a run is never written through one; remove the link, or "
        "put the file that it leads to in its place"
    )
