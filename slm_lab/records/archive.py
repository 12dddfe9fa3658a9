"""Shared runs: zip archives from anywhere, unpacked without trust.

All files in them are uncompressed, so that an archive is not larger than it seems."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import new_file

MAX_BYTES = 2**30
MAX_FILES = 1000
MAX_INDEX = 2**20
"""Bytes of the list of files."""
_NAME = re.compile(r"(?:(?:info|model|graph)/)?[\w.-]{1,200}\.(?:json|csv|pt|png|md)")


@contextmanager
def unpacked(run: str) -> Iterator[str]:
    """The run folder in the archive `run`, removed at the end; any other `run` as it
    is. Raises UsageError for an archive that is damaged, or that the lab would not have
    written."""
    archive = Path(run)
    if archive.suffix.lower() != ".zip" or not os.path.isfile(archive):
        yield run
        return
    with TemporaryDirectory() as parent:
        folder = Path(parent).resolve() / archive.stem
        try:
            _unpack(archive, folder)
        except (ValueError, OSError, EOFError, BadZipFile, RuntimeError) as error:
            reason = str(error) or "it ends too early"
            raise UsageError(
                f"{archive} is not a shared run, or is damaged: {reason}"
            ) from error
        with naming(archive, folder):
            yield str(folder)


def archive_of(run: str, folder: str) -> Path | None:
    """The archive `run` if it was unpacked into `folder`, see `unpacked`."""
    if folder == run:
        return None
    return Path(run)


@contextmanager
def naming(archive: Path, folder: Path) -> Iterator[None]:
    """Names `archive` in errors about files unpacked into `folder`."""
    try:
        yield
    except LabError as error:
        if archive != folder:
            text = str(error).replace(f"{folder}/", f"{archive}: ")
            text = text.replace(str(folder), str(archive))
            error.args = (text if str(archive) in text else f"{archive}: {text}",)
        raise


def _unpack(archive: Path, folder: Path) -> None:
    _check(archive)
    folder.mkdir()
    with ZipFile(archive) as file:
        if len({name.casefold() for name in file.namelist()}) < len(file.namelist()):
            raise ValueError("it has two files of one name")
        for entry in file.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if not _NAME.fullmatch(entry.filename) or kind not in (0, stat.S_IFREG):
                raise ValueError(f"{entry.filename!r:.80} is no file of a run")
            target = folder / entry.filename
            target.parent.mkdir(exist_ok=True)
            with new_file(target) as stream:
                stream.write(file.read(entry))
            if target.suffix == ".pt":
                _check(target)  # torch would inflate what is compressed in it


def _check(path: Path) -> None:
    """Raises ValueError unless `path` is a zip file of bounded size without
    compression."""
    with path.open("rb") as stream:
        stream.seek(-min(98, path.stat().st_size), 2)
        tail = stream.read()
    # of zip64; of others
    index = tail[40:48] if tail[56:60] == b"PK\6\7" else tail[-10:-6]
    if tail[-22:-18] != b"PK\5\6" or int.from_bytes(index, "little") > MAX_INDEX:
        raise ValueError(
            f"{path.name} is no zip file, or its list of files is too long"
        )
    with ZipFile(path) as file:
        entries = file.infolist()
    if any(entry.compress_type != ZIP_STORED for entry in entries):
        raise ValueError(f"{path.name} has compressed files; the lab writes none")
    if (
        len(entries) > MAX_FILES
        or sum(entry.file_size for entry in entries) > MAX_BYTES
    ):
        raise ValueError(
            f"{path.name} has over {MAX_FILES} files, or over {MAX_BYTES >> 20} MiB"
        )
