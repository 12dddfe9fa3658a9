"""Tables of what a search, a comparison or the Sessions of a Trial have written."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slm_lab.core.errors import UsageError
from slm_lab.metrics.reader import Rows

if TYPE_CHECKING:
    import pandas as pd


def read_table(file: Path) -> "pd.DataFrame":
    """The table in a CSV. Raises UsageError if it is not written yet.

    A column `mode` holds words, of which "false" is one."""
    import pandas as pd  # slow to import, and a list of runs reads no table

    if not file.is_file():
        raise UsageError(f"{file.parent} has no {file.name} yet")
    return pd.read_csv(file, dtype={"mode": str})


def joined_rows(by_session: Mapping[int, Rows]) -> "pd.DataFrame":
    """The rows of all Sessions in one table, each with its `session`."""
    import pandas as pd

    tables = [
        pd.DataFrame(rows.values.T, columns=list(rows.columns)).assign(session=session)
        for session, rows in by_session.items()
    ]
    filled = [table for table in tables if len(table)]
    table = pd.concat(filled or tables, ignore_index=True)
    return table[["session", *(column for column in table if column != "session")]]
