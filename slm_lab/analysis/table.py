"""Tables as they are shown, and as CSV for programs."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class TextTable:
    """Cells as they are shown; the first column says what a row is about."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A CSV file; a cell is empty for None."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([header, *rows])
    return buffer.getvalue().encode()
