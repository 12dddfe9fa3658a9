"""Where commands print: lines, tables, and a part of the terminal that is drawn anew again and
again."""

import sys
from types import TracebackType
from typing import Self, final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

LOG_WIDTH = 140
"""Columns of a table where there is no terminal."""


def wide_console() -> Console:
    """The standard output, with room for tables where it is no terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else LOG_WIDTH)


def say(console: Console, line: str | Text) -> None:
    """Prints a line as it is, however long: a path or a command is there to be copied."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@final
class Screen:
    """Shows the newest picture until it is left, where the last one stays; without a terminal it
    shows nothing."""

    def __init__(self, console: Console, refresh_per_second: float = 4) -> None:
        is_live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, refresh_per_second=refresh_per_second)
        self.is_live = is_live
        """Whether there is a terminal to show it on."""

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_live:
            self._live.stop()

    def show(self, picture: RenderableType) -> None:
        """The next picture."""
        if self.is_live:
            self._live.update(picture)
