"""A column of the rows that a Session writes."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Column:
    """One column: its `name` in the CSV, its `unit`, one sentence of `meaning`."""

    name: str
    unit: str
    meaning: str
