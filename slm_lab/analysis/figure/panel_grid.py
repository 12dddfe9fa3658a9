"""Where the panels of an overview go."""

from dataclasses import dataclass
from typing import final

MAX_COLUMNS = 4
"""So many panels side by side are still readable on a slide."""


@final
@dataclass(frozen=True)
class Cell:
    """A place in the grid; `lowest` is the one at the foot of its column."""

    row: int
    column: int
    lowest: bool


def grid_shape(panels: int) -> tuple[int, int]:
    """Rows and columns for `panels` pictures: about as many of both, never more than 4 columns."""
    columns = next((c for c in range(1, MAX_COLUMNS) if panels <= c * c), MAX_COLUMNS)
    return -(-panels // columns), columns


def cells(panels: int) -> list[Cell]:
    """The places of `panels` pictures, row by row; every column has one that is lowest."""
    _, columns = grid_shape(panels)
    return [Cell(i // columns, i % columns, i + columns >= panels) for i in range(panels)]
