"""Where commands print: lines, tables, and a part of the terminal that is drawn anew again and
again."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Self, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from slm_lab.cli.output import printable

LOG_WIDTH = 140
"""Columns of a table where there is no terminal."""


@final
class LabConsole(Console):
    """The standard output. What names and keys of files hold is never acted on by a terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See `Console`: every text that is printed passes here, those of tables among them."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console() -> Console:
    """The standard output."""
    return LabConsole(file=sys.stdout)


def wide_console() -> Console:
    """The standard output, with room for tables where it is no terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return LabConsole(file=sys.stdout, width=None if is_terminal else LOG_WIDTH)


def say(console: Console, line: str | Text) -> None:
    """Prints a line as it is, however long: a path or a command is there to be copied."""
    console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)


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
