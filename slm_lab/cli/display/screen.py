"""Output of the commands: lines, tables, documents, and a live region that is
redrawn."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Self, final

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slm_lab.cli.display.output import SafeStream
from slm_lab.core.process import PICTURES
from slm_lab.core.text import printable

LOG_WIDTH = 140
"""Columns of a table without a terminal."""
_ENDLESS = 10_000


@final
class LabConsole(Console):
    """The standard output. Escapes control characters in printed text, such as names of
    files."""

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escapes every text here, because all printed text passes this method, tables
        too."""
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else segment._replace(text=printable(segment.text))
            )


def console(quiet: bool = False) -> Console:
    """The standard output; `quiet` prints nothing."""
    return LabConsole(file=sys.stdout, quiet=quiet)


def wide_console(quiet: bool = False) -> Console:
    """The standard output, wide enough for tables if it is no terminal; `quiet` prints
    nothing."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return LabConsole(
        file=sys.stdout, width=None if is_terminal else LOG_WIDTH, quiet=quiet
    )


def print_line(console: Console, line: str | Text, style: str = "") -> None:
    """Prints a line without wrapping, so that paths and commands can be copied. `style`
    is of a plain text."""
    if isinstance(line, str):
        line = Text(line, style)
    console.print(line, soft_wrap=True)


def print_heading(
    console: Console, verb: str, name: str, rest: str, notes: Iterable[str] = ()
) -> None:
    """Prints what begins, its name bold, and notes in yellow; a quiet console's go to
    stderr."""
    print_line(console, Text.assemble(f"{verb} ", (name, "bold"), rest))
    for note in notes:
        if console.quiet:
            print(note, file=sys.stderr)
        print_line(console, note, "yellow")


def print_table(
    console: Console,
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: bool = False,
    **style: Any,
) -> None:
    """Prints a table with a bold title. The first column and those named `left` are
    aligned left, the others right. Where words would be cut, columns are left out, in
    the order of `spare`. `whole` folds nothing, so that names can be copied. Rows may
    then be wider than the terminal, which continues them in the next line. `style` are
    further arguments of rich's Table."""
    lines = list(rows)
    endless = console.options.update(max_width=_ENDLESS)
    names = min(max((len(cells[0]) for cells in lines), default=0), console.width // 3)
    for count in range(len(spare) + 1):
        shown = [i for i, name in enumerate(header) if name not in spare[:count]]
        table = Table(title=title, title_justify="left", title_style="bold", **style)
        for i in shown:
            is_left = i == 0 or header[i] in left
            justify: JustifyMethod = "left" if is_left else "right"
            table.add_column(
                header[i],
                justify=justify,
                overflow="fold",
                min_width=None if i else names,  # other columns fold first
            )
        for cells in lines:
            table.add_row(*(Text(cells[i].replace("\n", "\\n")) for i in shown))
        widest = console.measure(table, options=endless).maximum
        if count == len(spare) or widest <= console.width:
            break
    if whole:
        table.width = widest
    console.print(table, crop=not whole)
    if len(shown) < len(header):
        print_line(
            console, f"without {', '.join(spare[:count])}: the terminal is too narrow"
        )


def print_json(document: object) -> None:
    """Prints a document, in colours on a terminal; numbers that are not finite become
    null."""
    from pydantic_core import to_json

    written = to_json(document, indent=2, inf_nan_mode="null").decode()
    # Escapes control characters as JSON does, unlike `printable`.
    text = "".join(
        c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in written
    )
    stream: object = sys.stdout
    with stream.for_document() if isinstance(stream, SafeStream) else nullcontext():
        if sys.stdout is None or not sys.stdout.isatty():
            print(text)
            return
        from rich.syntax import Syntax

        coloured = Syntax(text, "json", background_color="default").highlight(text)
        coloured.rstrip()
        print_line(console(), coloured)


@final
class Screen:
    """A live region that shows the newest picture, and keeps the last one at its exit.
    Without a terminal it shows nothing."""

    def __init__(self, console: Console) -> None:
        in_notebook = PICTURES in os.environ
        if in_notebook:  # which asks for colours, as if it were a terminal
            plain = LabConsole(
                file=sys.stdout, width=console.width, force_terminal=False
            )
            self._live: Live = NotebookLive(console=plain, refresh_per_second=2)
        else:
            self._live = Live(console=console, refresh_per_second=5)
        self.is_live = in_notebook or (
            console.is_terminal and not console.is_dumb_terminal
        )
        """Whether the output is a terminal, or a notebook."""

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_live:
            self._live.stop()

    def show(self, picture: RenderableType) -> None:
        """Replaces the picture."""
        if self.is_live:
            self._live.update(picture)


@final
class NotebookLive(Live):
    """Prints each picture as one line: it begins with a form feed and has vertical tabs
    for line ends. `slm_lab.api` shows them in a notebook."""

    @override
    def refresh(self) -> None:
        rows = self.console.render_lines(self.get_renderable(), pad=False)
        lines = ("".join(segment.text for segment in row) for row in rows)
        sys.stdout.write("\f" + "\v".join(lines).rstrip() + "\n")
        sys.stdout.flush()
