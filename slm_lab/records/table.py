"""Reads a table that a search or a comparison has written."""

from pathlib import Path
from typing import TYPE_CHECKING

from slm_lab.core.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def read_table(file: Path) -> "pd.DataFrame":
    """The table in a CSV. Raises UsageError if it is not written yet.

    A column `mode` holds words, of which "false" is one."""
    import pandas as pd  # slow to import, and a list of runs reads no table

    if not file.is_file():
        raise UsageError(f"{file.parent} has no {file.name} yet")
    return pd.read_csv(file, dtype={"mode": str})
