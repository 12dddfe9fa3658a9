"""Reads rows back from a CSV, also while it is being written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.files import read_file
from slm_lab.core.types import FloatArray
from slm_lab.metrics.older import completed
from slm_lab.metrics.row import BASE_COLUMNS

CLOCK = "frame"


class DamagedRowsError(LabError, ValueError):
    """A file of rows was edited, or cut somewhere else than at the end of a line."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """R rows of numbers: `rows[column]` is float64 (R,), NaN where a cell is empty.

    `values` is (C, R), column by column in the order of `columns`, and read-only. Counts are exact
    up to 2^53.
    """

    columns: tuple[str, ...]
    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.columns):
            shape = self.values.shape
            raise ValueError(f"values of shape {shape} for {len(self.columns)} columns")
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return int(self.values.shape[1])

    def __getitem__(self, column: str) -> FloatArray:
        if column not in self.columns:
            raise KeyError(column)
        values: FloatArray = self.values[self.columns.index(column)]
        return values

    def has_values(self, column: str) -> bool:
        """Whether any cell of the column is filled."""
        return not np.isnan(self[column]).all()


NO_ROWS = Rows(BASE_COLUMNS, np.empty((len(BASE_COLUMNS), 0)))
"""A Session that has not started."""


def read_rows(path: str | Path) -> Rows:
    """The whole rows of a CSV; those of earlier versions are `completed`.

    A last line without its end is still being written and left out. A file without even a header
    is a session without rows. Raises OSError when there is no file; DamagedRowsError, with line and
    column, when a cell is no number, a line has too few or too many, or the header is none.
    """
    text = read_file(Path(path))
    header, *lines = text[: text.rfind(b"\n") + 1].splitlines() or [b""]
    if not header:
        return NO_ROWS
    columns = column_names(header)
    if CLOCK not in columns:
        raise DamagedRowsError(f"{path}, line 1: has no column {CLOCK}, as all files of rows have")
    rows = np.empty((len(lines), len(columns)))
    for index, line in enumerate(lines):
        try:
            rows[index] = parse_row(columns, line)  # None becomes NaN
        except ValueError as error:
            raise DamagedRowsError(f"{path}, line {index + 2}: {error}") from None
    return Rows(*completed(columns, np.ascontiguousarray(rows.T)))


def column_names(header: bytes) -> tuple[str, ...]:
    """The names in the first line of a CSV, which is given without its end."""
    return tuple(header.decode().split(","))


def parse_row(columns: Sequence[str], line: bytes) -> list[float | None]:
    """The numbers of a line, which is given without its end; None for an empty cell.

    Raises ValueError when a cell is no number, named by its column, or when there are more or
    fewer cells than columns.
    """
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
