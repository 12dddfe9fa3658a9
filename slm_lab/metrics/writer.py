"""Appends rows to session CSVs. After a crash at any moment each file has only whole
lines."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from slm_lab.core.errors import UnusableCheckpointError, undone_on_failure
from slm_lab.core.files import open_own
from slm_lab.metrics.row import Row


@final
@dataclass(frozen=True)
class Extent:
    """The first `size` bytes of a file of rows, and their checksum: its state at a
    checkpoint."""

    size: int
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> "Extent":
        """The extent of a whole file."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    def misfit(self, path: Path) -> str | None:
        """Why the file does not begin with this extent, or None."""
        try:
            with open(path, "rb") as file:
                content = file.read(self.size)
        except FileNotFoundError:
            return f"{path} is missing; it had {self.size} bytes at the checkpoint"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if len(content) < self.size:
            lengths = (
                f"{len(content)} bytes, fewer than the {self.size} it had at the "
                "checkpoint"
            )
            return f"{path} has {lengths}: rows were lost or edited"
        if Extent.of(content) != self:
            return (
                f"{path} is damaged: rows do not match the checksum of the checkpoint"
            )
        return None


@final
class RowWriter:
    """Writes a header, then one line per row, each in one unbuffered write. It appends
    to an existing file. Raises CheckpointError if the file's header differs from
    `columns`, or its last line is incomplete (see `truncate_rows`). After an OSError (a
    full disk) the partial line is removed, and `close` raises nothing."""

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        self.path = Path(path)
        self.columns = tuple(columns)
        self._sum = hashlib.sha256()
        """The checksum of the whole file."""
        header = ",".join(self.columns).encode() + b"\n"
        content = b""
        if self.path.exists():
            content = self.path.read_bytes()
        if content:
            _check_continuable(self.path, content, header)
            self._sum.update(content)
            header = b""
        # Unbuffered: a kill loses nothing, and a full disk cannot fail again when the
        # file closes.
        descriptor = open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._file = open(descriptor, "ab", buffering=0)  # noqa: SIM115 - open as long as self
        self._size = os.fstat(self._file.fileno()).st_size
        with undone_on_failure(self.close):
            self._write(header)

    def append(self, row: Row) -> None:
        """Adds a line. Raises ValueError if the row's columns differ from the
        file's."""
        if row.columns != self.columns:
            raise ValueError(
                f"a row of {row.columns} does not fit a file of {self.columns}"
            )
        self._write(row.to_csv().encode() + b"\n")

    def sync(self) -> Extent:
        """Waits until all rows are on the disk; returns the extent of the file."""
        os.fsync(self._file.fileno())
        return Extent(self._size, self._sum.hexdigest())

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()

    def _write(self, line: bytes) -> None:
        rest = line
        try:
            # a nearly full disk accepts a part, and fails at the next write
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)
        self._sum.update(line)


@final
class SessionRows:
    """The files of rows of one Session, which a resume cuts back together. `columns`
    maps the name of each file in `folder` to its columns. `extents` are the extents in
    the checkpoint to resume from; without them the files start empty. Raises
    CheckpointError as `truncate_rows` and RowWriter do, and OSError if the disk
    fails."""

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Sequence[str]],
        extents: Mapping[str, Extent] | None = None,
    ) -> None:
        self._writers: dict[str, RowWriter] = {}
        for name in columns:
            if extents is None or (name in extents and extents[name].size == 0):
                (folder / name).unlink(missing_ok=True)
            elif name in extents:
                truncate_rows(folder / name, extents[name])
            else:
                raise UnusableCheckpointError(
                    f"the checkpoint does not say how long {folder / name} was"
                )
        with undone_on_failure(self.close):
            for name, names in columns.items():
                self._writers[name] = RowWriter(folder / name, names)

    @staticmethod
    def whole_lines(
        folder: Path, names: Iterable[str], frame: int
    ) -> dict[str, Extent]:
        """The extent of each file up to its last whole line at or before `frame`."""
        extents = {}
        for name in names:
            content = b""
            if (folder / name).exists():
                content = (folder / name).read_bytes()
            header, *lines = content.splitlines(keepends=True) or [b""]
            whole = [line for line in lines if line.endswith(b"\n")]
            rows = [line for line in whole if int(line.split(b",")[0]) <= frame]
            extents[name] = Extent.of(
                b"".join([header, *rows]) if header.endswith(b"\n") else b""
            )
        return extents

    def append(self, name: str, row: Row) -> None:
        """Adds a line to the file `name`."""
        self._writers[name].append(row)

    def sync(self) -> dict[str, Extent]:
        """Waits until all rows are on the disk; returns the extent of every file."""
        return {name: writer.sync() for name, writer in self._writers.items()}

    def close(self) -> None:
        """Closes the files; may be called twice."""
        for writer in self._writers.values():
            writer.close()


def truncate_rows(path: str | Path, extent: Extent) -> None:
    """Cuts a session CSV back to its content at a checkpoint, durably. Raises
    CheckpointError if the file is missing, or its beginning differs from that
    content."""
    path = Path(path)
    misfit = extent.misfit(path)
    if misfit is not None:
        raise UnusableCheckpointError(misfit)
    with open(open_own(path, os.O_RDWR), "r+b") as file:
        file.truncate(extent.size)
        os.fsync(file.fileno())


def _check_continuable(path: Path, content: bytes, header: bytes) -> None:
    if not content.startswith(header):
        first_line = content.split(b"\n")[0].decode(errors="replace").strip()
        columns = header.decode().strip()
        message = f"has the columns {first_line}, but this run writes {columns}"
        raise UnusableCheckpointError(f"{path} {message}")
    if not content.endswith(b"\n"):
        message = "ends in half a row; cut it back to a checkpoint first"
        raise UnusableCheckpointError(f"{path} {message}")
