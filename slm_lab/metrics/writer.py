"""Appends rows to a session CSV so that a crash at any moment leaves whole lines behind."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

from slm_lab.core.errors import CheckpointError
from slm_lab.core.files import open_own
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
        header = ",".join(self.columns).encode() + b"\n"
        if self.path.exists() and self.path.stat().st_size:
            _check_continuable(self.path, header)
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

    def sync(self) -> int:
        """Waits until all rows are on the disk; returns the size of the file in bytes."""
        os.fsync(self._file.fileno())
        return self._size

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


@final
class RowFiles:
    """The files of rows of one Session, which a checkpoint cuts back together.

    `columns` maps the name of each file in `folder` to its columns. `sizes` are the bytes that each
    had at the checkpoint to go on from; without them the files begin anew. Raises CheckpointError
    as `truncate_rows` and RowWriter do, OSError where the disk does not take them.
    """

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Sequence[str]],
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self._writers: dict[str, RowWriter] = {}
        for name in columns:
            if sizes is None or sizes.get(name) == 0:
                (folder / name).unlink(missing_ok=True)
            elif name in sizes:
                truncate_rows(folder / name, sizes[name])
            else:
                raise CheckpointError(f"the checkpoint does not say how long {folder / name} was")
        try:
            for name, names in columns.items():
                self._writers[name] = RowWriter(folder / name, names)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def whole_lines(folder: Path, names: Iterable[str], frame: int) -> dict[str, int]:
        """The bytes of each file up to the end of its last whole line that is not after `frame`."""
        return {name: _size_at(folder / name, frame) for name in names}

    def append(self, name: str, row: Row) -> None:
        """Adds a line to the file `name`."""
        self._writers[name].append(row)

    def sync(self) -> dict[str, int]:
        """Waits until all rows are on the disk; returns the bytes of every file."""
        return {name: writer.sync() for name, writer in self._writers.items()}

    def close(self) -> None:
        """Closes them; may be called twice."""
        for writer in self._writers.values():
            writer.close()


def truncate_rows(path: str | Path, size: int) -> None:
    """Cuts a session CSV back to the `size` bytes it had at a checkpoint, durably.

    Raises CheckpointError when the file is missing, shorter than `size`, or has no line end there.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(
            f"{path} is missing; the checkpoint was made when it had {size} bytes"
        )
    with open(open_own(path, os.O_RDWR), "r+b") as file:
        actual = os.fstat(file.fileno()).st_size
        if actual < size:
            raise CheckpointError(
                f"{path} has {actual} bytes, fewer than the {size} it had at the checkpoint: "
                "rows were lost or edited"
            )
        if size > 0:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                raise CheckpointError(
                    f"{path} has no line end at byte {size}, where a row ended at the "
                    "checkpoint: the file was edited"
                )
        file.truncate(size)
        os.fsync(file.fileno())


def _size_at(path: Path, frame: int) -> int:
    content = path.read_bytes() if path.exists() else b""
    header, *lines = content.splitlines(keepends=True) or [b""]
    kept = [line for line in lines if line.endswith(b"\n") and int(line.split(b",")[0]) <= frame]
    return len(header + b"".join(kept)) if header.endswith(b"\n") else 0


def _check_continuable(path: Path, header: bytes) -> None:
    with open(path, "rb") as file:
        found = file.readline()
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
    if found != header:
        raise CheckpointError(
            f"{path} has the columns {found.decode(errors='replace').strip()}, "
            f"but this run writes {header.decode().strip()}"
        )
    if last != b"\n":
        raise CheckpointError(f"{path} ends in half a row; cut it back to a checkpoint first")
