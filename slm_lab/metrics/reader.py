"""Reads rows from a CSV, also while it is written, and from files of earlier
versions."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.files import open_file
from slm_lab.core.types import FloatArray
from slm_lab.metrics.row import BASE_COLUMNS

CLOCK = "frame"
TAIL = 1 << 16
"""Bytes at the end of a file: more than a row has."""
_ADDED = ("mean_return", "recent_return", "final_return", "final_return_episodes")


class DamagedRowsError(LabError, ValueError):
    """A file of rows was edited, or cut inside a line."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """R rows of numbers: `rows[column]` is float64 (R,), NaN where a cell is empty.
    `values` is (C, R), a row per column, and read-only. Counts are exact up to 2^53."""

    columns: tuple[str, ...]
    values: FloatArray

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return int(self.values.shape[1])

    def __getitem__(self, column: str) -> FloatArray:
        if column not in self.columns:
            raise KeyError(column)
        return self.values[self.columns.index(column)]

    def has_values(self, column: str) -> bool:
        """Whether any cell of the column has a value."""
        return not np.isnan(self[column]).all()


NO_ROWS = Rows(BASE_COLUMNS, np.empty((len(BASE_COLUMNS), 0)))
"""The rows of a Session that has not started."""


def read_rows(path: str | Path) -> Rows:
    """The complete rows of a CSV, with the columns that earlier versions lack. Omits a
    last line without a line end, which is still being written. A file without a header
    has no rows. Raises OSError if there is no file. Raises DamagedRowsError, with line
    and column, for a cell without a number. It does so too for a line with too few or
    too many cells, and for an invalid header."""
    Path(path).stat()
    return RowFile(Path(path)).read()


def column_names(header: bytes) -> tuple[str, ...]:
    """The names in the first line of a CSV, given without its line end."""
    return tuple(header.decode(errors="replace").split(","))


def parse_row(columns: Sequence[str], line: bytes) -> list[float | None]:
    """The numbers of a line, given without its line end; None for an empty cell. Raises
    ValueError, with the column, if a cell is no number, or if the number of cells is
    wrong."""
    cells = line.split(b",")
    if len(cells) != len(columns):
        raise ValueError(f"cells: {len(cells)}, columns: {len(columns)}")
    numbers: list[float | None] = []
    for column, cell in zip(columns, cells, strict=True):
        try:
            numbers.append(float(cell) if cell else None)
        except ValueError:
            text = cell.decode(errors="replace")
            raise ValueError(f'column {column}: "{text}" is no number') from None
    return numbers


def _completed(
    columns: tuple[str, ...], values: FloatArray
) -> tuple[tuple[str, ...], FloatArray]:
    """Columns and values (C, R) of a file of an earlier version, with the columns that
    it lacks. These are empty, because such files have no means over episodes."""
    if "final_return" in columns or "total_reward" not in columns:
        return columns, values
    empty = np.full((len(_ADDED), values.shape[1]), np.nan)
    return (*columns, *_ADDED), np.concatenate([values, empty])


def read_existing(files: Mapping[int, Path]) -> dict[int, Rows]:
    """The rows of each file; a Session without a file has not started."""
    return {
        session: read_rows(file) for session, file in files.items() if file.exists()
    }


@final
class RowFile:
    """The rows of a growing CSV, read once each; a resume may also cut off rows at its
    end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cuts = 0
        """The number of times that rows were cut off; reading then began again at the
        first row."""
        self._begin()

    def _begin(self) -> None:
        self.columns: tuple[str, ...] = ()
        """The names in the header; empty before it is read."""
        self._lines = self._offset = 0
        self._last_line = b""
        self._values = np.empty((0, 0))
        self._rows = NO_ROWS
        self._seen: tuple[int, int, int] | None = None

    def new_rows(self) -> list[dict[str, float | None]]:
        """The complete rows since the last call, by column; None is an empty cell.
        Raises DamagedRowsError, with line and column."""
        lines = self._new_lines() if self.path.exists() else []
        if lines and not self.columns:
            self.columns = column_names(lines.pop(0))
            self._lines = 1
        first = self._lines + 1
        rows = []
        self._lines += len(lines)
        for number, line in enumerate(lines, first):
            try:
                rows.append(
                    dict(zip(self.columns, parse_row(self.columns, line), strict=True))
                )
            except ValueError as error:
                raise DamagedRowsError(f"{self.path}, line {number}: {error}") from None
        return rows

    def read(self) -> Rows:
        """All complete rows, none without a file; not beside `new_rows`. Raises as
        `read_rows`."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return NO_ROWS
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._seen:
            return self._rows
        if self._seen is not None and seen[0] != self._seen[0]:
            self._begin()
        try:
            new = self.new_rows()
            if self.columns not in ((), ("",)) and CLOCK not in self.columns:
                lacks = f"has no column {CLOCK}, as all files of rows have"
                raise DamagedRowsError(f"{self.path}, line 1: {lacks}")
        except ValueError:
            self._begin()
            raise
        if CLOCK in self.columns:
            cells = np.array(
                [[row[name] for name in self.columns] for row in new], np.float64
            )
            parts = [
                block.reshape(-1, len(self.columns)) for block in (self._values, cells)
            ]
            self._values = np.concatenate(parts)
            self._rows = Rows(*_completed(self.columns, self._values.T.copy()))
        self._seen = seen
        return self._rows

    def last_row(self) -> dict[str, float | None]:
        """The last complete row, by column; empty without one. Reads only the ends of
        the file. Raises OSError and ValueError."""
        with open_file(self.path) as file:
            columns = column_names(file.readline().rstrip(b"\r\n"))
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines(keepends=True)
        complete = [line for line in lines if line[-1:] == b"\n"]
        if not complete:
            return {}
        row = parse_row(columns, complete[-1].rstrip(b"\r\n"))
        return dict(zip(columns, row, strict=True))

    def _new_lines(self) -> list[bytes]:
        with open_file(self.path) as file:
            # A file that was cut back may have grown past the offset since. So the line
            # that was read last, with its wall_t, must still be at its place.
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                self.cuts += 1
                self._begin()
                file.seek(0)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        if lines:
            self._offset += len(whole)
            self._last_line = lines[-1]
        return [line.rstrip(b"\r\n") for line in lines]


@final
class NewRows:
    """The new rows of a Session's file, each once: after a restart the Session writes
    some again."""

    def __init__(self, file: Path, after: float = -1.0) -> None:
        """`after` is the frame of the last row that is known."""
        self._file = RowFile(file)
        self._frame = after

    def read(self) -> list[dict[str, float | None]]:
        """The rows after the last known frame, by column. Damaged ones are left out;
        whoever reads the whole file reports them."""
        rows = list[dict[str, float | None]]()
        with suppress(ValueError, OSError):
            rows = self._file.new_rows()
        new = []
        for row in rows:
            frame = row.get("frame") or 0.0
            if frame > self._frame:
                self._frame = frame
                new.append(row)
        return new
