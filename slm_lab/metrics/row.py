"""The columns of a session CSV, with units and meanings, and its rows."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.registry import suggestion
from slm_lab.core.types import Column

Cell: TypeAlias = int | float | None
"""The value of a row in one column; None is an empty cell: not measured in this
interval."""


_TABLE = json.loads(
    Path(__file__).with_name("columns.json").read_text(encoding="utf-8")
)
"""The unit and meaning of each column by name: the base columns, then the extra
ones."""

LABELS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("labels.json").read_text(encoding="utf-8")
)
"""Labels for people: of columns whose name does not say enough, and of a Trial's
metrics and speeds."""

COLUMNS: dict[str, Column] = {
    name: Column(name, *texts)
    for part in _TABLE.values()
    for name, texts in part.items()
}
"""Every column this package documents, by name. `docs/metrics.md` shows this table."""

LEARNED = ("loss", "lr", "entropy", "explore_var", "grad_norm")
"""The base columns that learners report."""

BASE_COLUMNS: tuple[str, ...] = tuple(_TABLE["base"])
"""The columns of every session CSV, in this order; extra columns follow."""

EVAL_COLUMNS: tuple[str, ...] = (
    "frame",
    "total_frame",
    "wall_t",
    "epi",
    "opt_step",
    "total_reward",
    "total_reward_ma",
    "final_return",
    "final_return_episodes",
    "return_std",
    "return_min",
    "return_max",
    "episode_length",
)
"""The columns of a CSV of evaluations: the training's clocks, and the results."""

INFO_PREFIX = "info_"
RETURN_PREFIX = "return_of_"


@final
@dataclass(frozen=True)
class Row:
    """One line of a session CSV: `cells[i]` belongs to `columns[i]`."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.columns.index(column)]

    def to_csv(self) -> str:
        """The line without its line end. Reading it restores floats bitwise."""
        return ",".join(_cell_text(cell) for cell in self.cells)


def info_columns(keys: Iterable[str]) -> tuple[Column, ...]:
    """The columns for `env.info_keys`."""
    meaning = (
        "mean over the episodes since the last row that ended with this number in "
        "their info"
    )
    return tuple(Column(f"{INFO_PREFIX}{key}", "1", meaning) for key in keys)


def return_columns(agents: Iterable[str]) -> tuple[Column, ...]:
    """The columns for the agents of an environment with several."""
    meaning = "mean return of the episodes of this agent that ended since the last row"
    return tuple(Column(f"{RETURN_PREFIX}{agent}", "1", meaning) for agent in agents)


def resolve_columns(extra: Iterable[str | Column]) -> tuple[str, ...]:
    """The base columns, then `extra`: names from `COLUMNS`, or other Columns. Raises
    LabError for an unknown name, for a name with a comma, quote or line end, and for a
    duplicate."""
    names = list(BASE_COLUMNS)
    for column in extra:
        name = column.name if isinstance(column, Column) else column
        if isinstance(column, str) and name not in COLUMNS:
            raise LabError(
                f'"{name}" is no documented column{suggestion(name, COLUMNS)}; '
                "give a Column with its unit and meaning"
            )
        if not name or any(mark in name for mark in ',"\r\n'):
            raise LabError(
                f"{name!r} cannot be the name of a column: it would break the CSV"
            )
        if name in names:
            raise LabError(f'column "{name}" is there already')
        names.append(name)
    return tuple(names)


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return ""
    # float() first, because the repr of a numpy float is not a plain number.
    if isinstance(cell, int | np.integer):
        return str(int(cell))
    return repr(float(cell))
