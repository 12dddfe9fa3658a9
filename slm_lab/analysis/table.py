"""Counts and tables as text."""

from typing import NamedTuple


class TextTable(NamedTuple):
    """Cells as they are shown; the column `words` is aligned to the left, others to the right. A
    narrow terminal leaves columns out, in the order of `spare`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 0
    spare: tuple[str, ...] = ()


def count_text(number: int, noun: str) -> str:
    """ "1 seed", "2 seeds", "12 000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")
