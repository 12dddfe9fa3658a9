"""Shared runs: zip archives from anywhere, unpacked without trust.

All files in them are uncompressed, so that an archive is not larger than it seems.
"""

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from slm_lab.core.errors import UsageError
from slm_lab.core.files import new_file

MAX_BYTES = 2**30
"""Of all files together."""
MAX_FILES = 1000
MAX_INDEX = 2**20
"""Bytes of the list of files."""
_NAME = re.compile(r"(?:(?:info|model|graph)/)?[\w.-]{1,200}\.(?:json|csv|pt|png|md)")


@contextmanager
def unpacked(run: str) -> Iterator[str]:
    """The run folder in the archive `run`, removed at the end; any other `run` as it is.

    Raises UsageError for an archive that is damaged, or that the lab would not have written.
    """
    archive = Path(run)
    if archive.suffix != ".zip" or not archive.is_file():
        yield run
        return
    with TemporaryDirectory() as parent:
        folder = Path(parent, archive.stem)
        try:
            _unpack(archive, folder)
        except (ValueError, OSError, BadZipFile, NotImplementedError, RuntimeError) as error:
            raise UsageError(f"{archive} is not a shared run: {error}") from error
        yield str(folder)


def _unpack(archive: Path, folder: Path) -> None:
    with _opened(archive) as file:
        names = file.namelist()
        if len(names) > MAX_FILES or len({name.casefold() for name in names}) < len(names):
            raise ValueError(f"it has more than {MAX_FILES} files, or two of one name")
        for entry in file.infolist():
            if not _NAME.fullmatch(entry.filename):
                raise ValueError(f"{entry.filename!r:.80} is no file of a run")
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                raise ValueError(f"{entry.filename} is no regular file")
            target = folder / entry.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            with new_file(target) as stream:
                stream.write(file.read(entry))
            if target.suffix == ".pt":
                _opened(target).close()  # torch would inflate what is compressed in it


def _opened(path: Path) -> ZipFile:
    """The zip file at `path`. Raises ValueError for a compressed or too large one."""
    with path.open("rb") as stream:
        stream.seek(-min(98, path.stat().st_size), 2)
        tail = stream.read()
    is_zip64 = tail[56:60] == b"PK\6\7"
    index = tail[40:48] if is_zip64 else tail[-10:-6]
    if tail[-22:-18] != b"PK\5\6" or int.from_bytes(index, "little") > MAX_INDEX:
        raise ValueError(f"{path.name} is no zip file, or its list of files is too long")
    file = ZipFile(path)
    try:
        if any(entry.compress_type != ZIP_STORED for entry in file.infolist()):
            raise ValueError(f"{path.name} has compressed files; the lab writes none")
        if sum(entry.file_size for entry in file.infolist()) > MAX_BYTES:
            raise ValueError(f"the files in {path.name} have more than {MAX_BYTES >> 20} MiB")
    except BaseException:
        file.close()
        raise
    return file
