"""What commands print to: no reader, disk or character set ends a training."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast, final

ASCII = str.maketrans(
    {
        "–": "-",
        "—": "-",
        "−": "-",
        "×": "x",
        "±": "+/-",
        "…": "...",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
    }
)
"""What stands for the signs that the lab prints where the terminal does not know them."""


def printable(text: str) -> str:
    """The text with every character escaped that a terminal would act on, but for line ends and
    tabs: names and keys of files may hold any."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


@final
class Output(io.TextIOBase):
    """A standard stream. Characters that its encoding lacks are replaced.

    Where it cannot be written any more, nothing more is printed: silently where its reader has gone
    away, else `failure` says why. With `escapes` all that is written is made `printable`.
    """

    def __init__(self, stream: TextIO, escapes: bool) -> None:
        self.failure: str | None = None
        self._stream = stream
        self._escapes = escapes

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """That of the stream."""
        return self._stream.errors

    @property
    def buffer(self) -> io.BufferedIOBase:
        """Where bytes are written."""
        return cast(io.BufferedIOBase, self._stream.buffer)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Always, whatever becomes of it."""
        return True

    def write(self, text: str) -> int:
        """Prints, if it can be printed."""
        shown = self._encodable(printable(text) if self._escapes else text)
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        """Prints what waits, if it can be printed."""
        self._try(self._stream.flush)

    def _encodable(self, text: str) -> str:
        encoding = self.encoding or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return text.translate(ASCII).encode(encoding, "backslashreplace").decode(encoding)
        return text

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BrokenPipeError:
            self._give_up()
        except OSError as error:
            self._give_up()
            self.failure = error.strerror or str(error)

    def _give_up(self) -> None:
        """What waits to be printed, and what comes, goes nowhere."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def guarded_output() -> Iterator[Callable[[], str | None]]:
    """Has commands print through `Output`. Gives what tells why the standard output has failed.

    What is printed there passes through `cli.screen`, which escapes it and may add colours.
    """
    before = sys.stdout, sys.stderr
    out = None if sys.stdout is None else Output(sys.stdout, escapes=False)
    error = None if sys.stderr is None else Output(sys.stderr, escapes=True)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, error)

    def failure() -> str | None:
        if out is not None:
            out.flush()
        return None if out is None else out.failure

    try:
        yield failure
    finally:
        for stream in (out, error):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before
