"""Counts and tables as text."""

from typing import NamedTuple


class TextTable(NamedTuple):
    """Cells as they are shown; the column `words` is aligned to the left, others to the right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 0


def count_text(number: int, noun: str) -> str:
    """ "1 seed", "2 seeds", "12 000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")
