"""Counts and tables as text, and tables as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class TextTable(NamedTuple):
    """Cells as they are shown; the column `words` is aligned to the left, others to the right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 0


def count_text(number: int, noun: str) -> str:
    """ "1 seed", "2 seeds", "12 000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A CSV file; a cell is empty for None."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([header, *rows])
    return buffer.getvalue().encode()
