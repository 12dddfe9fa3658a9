"""A live table on a terminal, of Sessions or of trials; elsewhere lines of a log."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slm_lab.cli.display.screen import Screen

GAP = 2
"""Blank columns between two columns of a table."""
STOPPING = "saving, then stopping; Ctrl-C again ends at once"


class TableColumn(NamedTuple):
    """A column of a live table."""

    head: str
    width: int = 0
    """The minimum, so that columns do not move as numbers grow."""
    most: int | None = None
    """The maximum; a narrow terminal has less."""
    justify: JustifyMethod = "right"


class LiveTable(ABC):
    """A live table inside its `with` block. Without a terminal there is none, only the
    lines that are printed meanwhile."""

    BAR_WIDTH: ClassVar[int]
    """Characters of a progress bar."""
    ROOM_FOR_BAR: ClassVar[int]
    """The minimum width of a terminal for bars, in columns; a narrower one shows only
    numbers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._screen = Screen(console)
        self.is_live = self._screen.is_live
        """Whether the output is a terminal, or a notebook."""

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.show(self._picture())
        self._screen.__exit__(*error)

    @abstractmethod
    def _picture(self) -> RenderableType:
        """The table, and what is always below it."""

    def _show(self, *notes: Text) -> None:
        """Replaces the picture, with notes below it."""
        self._screen.show(Group(self._picture(), *notes))

    def _grid(self, columns: Sequence[TableColumn]) -> Table:
        """A table with its header."""
        table = Table.grid(padding=(0, GAP))
        for column in columns:
            table.add_column(
                no_wrap=column.most is None,
                justify=column.justify,
                min_width=column.width or None,
                max_width=column.most,
            )
        table.add_row(*(Text(column.head, "dim") for column in columns))
        return table

    def _bars(self) -> list[TableColumn]:
        """The column of progress bars, if there is room for it."""
        if not self._has_bars:
            return []
        return [TableColumn("", most=self.BAR_WIDTH, justify="left")]

    def _bar(self, frames: int, total: int) -> list[RenderableType]:
        """The cell of a progress bar, if there is room for it."""
        if not self._has_bars:
            return []
        return [ProgressBar(total, min(frames, total))]

    @property
    def _has_bars(self) -> bool:
        return self._console.width >= self.ROOM_FOR_BAR
