"""Appends rows to a session CSV so that a crash at any moment leaves whole lines behind."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

from slm_lab.core.errors import UnusableCheckpointError
from slm_lab.core.files import open_own
from slm_lab.metrics.extent import Extent
from slm_lab.metrics.row import Row


@final
class RowWriter:
    """Writes a header, then one line per row, each in one unbuffered write.

    An existing file is continued: its header must be the one of `columns` and its last line whole
    (see `truncate_rows`), else CheckpointError. OSError (a full disk) is raised to the caller; what
    was half written is taken back, and closing raises nothing more.
    """

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        self.path = Path(path)
        self.columns = tuple(columns)
        self._sum = hashlib.sha256()
        """Of all that the file holds."""
        header = ",".join(self.columns).encode() + b"\n"
        if self.path.exists() and self.path.stat().st_size:
            _check_continuable(self.path, header)
            self._sum.update(self.path.read_bytes())
            header = b""
        # Unbuffered: nothing waits in this process that a kill could lose or a full disk could
        # make fail a second time when the file is closed.
        descriptor = open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._file = open(descriptor, "ab", buffering=0)  # noqa: SIM115 - open as long as self
        self._size = os.fstat(self._file.fileno()).st_size
        try:
            self._write(header)
        except OSError:
            self.close()
            raise

    def append(self, row: Row) -> None:
        """Adds a line. Raises ValueError when the row's columns are not the file's."""
        if row.columns != self.columns:
            raise ValueError(f"a row of {row.columns} does not fit a file of {self.columns}")
        self._write(row.to_csv().encode() + b"\n")

    def sync(self) -> Extent:
        """Waits until all rows are on the disk; returns how far the file goes."""
        os.fsync(self._file.fileno())
        return Extent(self._size, self._sum.hexdigest())

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        rest = line
        try:
            while rest:  # a disk that is nearly full takes a part, and fails at the next write
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)
        self._sum.update(line)


@final
class RowFiles:
    """The files of rows of one Session, which a checkpoint cuts back together.

    `columns` maps the name of each file in `folder` to its columns. `extents` say how far each
    went at the checkpoint to resume from; without them the files begin anew. Raises CheckpointError
    as `truncate_rows` and RowWriter do, OSError where the disk does not take them.
    """

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
        try:
            for name, names in columns.items():
                self._writers[name] = RowWriter(folder / name, names)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def whole_lines(folder: Path, names: Iterable[str], frame: int) -> dict[str, Extent]:
        """Each file up to the end of its last whole line that is not after `frame`."""
        return {name: _extent_at(folder / name, frame) for name in names}

    def append(self, name: str, row: Row) -> None:
        """Adds a line to the file `name`."""
        self._writers[name].append(row)

    def sync(self) -> dict[str, Extent]:
        """Waits until all rows are on the disk; returns how far every file goes."""
        return {name: writer.sync() for name, writer in self._writers.items()}

    def close(self) -> None:
        """Closes them; may be called twice."""
        for writer in self._writers.values():
            writer.close()


def truncate_rows(path: str | Path, extent: Extent) -> None:
    """Cuts a session CSV back to what it held at a checkpoint, durably.

    Raises CheckpointError when the file is missing, or does not begin with what it held then.
    """
    path = Path(path)
    misfit = extent.misfit(path)
    if misfit is not None:
        raise UnusableCheckpointError(misfit)
    with open(open_own(path, os.O_RDWR), "r+b") as file:
        file.truncate(extent.size)
        os.fsync(file.fileno())


def _extent_at(path: Path, frame: int) -> Extent:
    content = path.read_bytes() if path.exists() else b""
    header, *lines = content.splitlines(keepends=True) or [b""]
    kept = [line for line in lines if line.endswith(b"\n") and int(line.split(b",")[0]) <= frame]
    return Extent.of(header + b"".join(kept) if header.endswith(b"\n") else b"")


def _check_continuable(path: Path, header: bytes) -> None:
    with open(path, "rb") as file:
        found = file.readline()
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
    if found != header:
        raise UnusableCheckpointError(
            f"{path} has the columns {found.decode(errors='replace').strip()}, "
            f"but this run writes {header.decode().strip()}"
        )
    if last != b"\n":
        raise UnusableCheckpointError(
            f"{path} ends in half a row; cut it back to a checkpoint first"
        )
