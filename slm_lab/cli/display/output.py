"""Standard streams that never fail, so that a closed pipe or a full disk ends no
training."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast, final

from slm_lab.core.text import printable

ASCII = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "×": "x", "±": "+/-"}
    | {"…": "...", "→": "->", "≤": "<=", "≥": ">="}
)
"""ASCII replacements of the lab's characters, for terminals without them."""


@final
class SafeStream:
    """A standard stream. Replaces characters that its encoding lacks. `escapes` applies
    `printable` to all text. After a failed write it prints nothing more: a closed pipe
    is silent, any other reason is in `failure`. All else is as in the stream."""

    def __init__(self, stream: TextIO, escapes: bool) -> None:
        self.failure: str | None = None
        self.awaits_document = False
        """Whether a document is all that should be printed, and it has not begun."""
        self._kept: int | None = None
        self._stream = stream
        self._escapes = escapes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Prints the text unless the stream has failed."""
        shown = self._encodable(printable(text) if self._escapes else text)
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def isatty(self) -> bool:
        """False if text is escaped, so that libraries print no codes of colours."""
        return not self._escapes and self._stream.isatty()

    def writelines(self, lines: Iterable[str]) -> None:
        """Prints the lines unless the stream has failed."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flushes the stream unless it has failed."""
        self._try(self._stream.flush)

    def keep_for_document(self) -> None:
        """Sends to the standard error whatever is printed here from now on, except
        inside `for_document`. This includes environments, processes and the end of the
        program."""
        with suppress(OSError):  # there is no standard error
            self._kept = os.dup(self._stream.fileno())
            os.dup2(2, self._stream.fileno())

    @contextmanager
    def for_document(self) -> Iterator[None]:
        """Prints inside this block come here, even after `keep_for_document`."""
        self.awaits_document = False
        self.flush()
        if self._kept is not None:
            os.dup2(self._kept, self._stream.fileno())
        yield
        self.flush()
        if self._kept is not None:
            os.dup2(2, self._stream.fileno())

    def write_document(self, text: str) -> None:
        """Writes a whole document at once, whatever else is being printed."""
        self.awaits_document = False
        place = self._kept
        if place is None:
            place = self._stream.fileno()
        with suppress(OSError):  # a closed pipe, a full disk
            os.write(place, text.encode())

    def _encodable(self, text: str) -> str:
        encoding = self._stream.encoding or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return (
                text.translate(ASCII)
                .encode(encoding, "backslashreplace")
                .decode(encoding)
            )
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
        """Redirects the stream, its buffer included, to the null device."""
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextmanager
def guarded_output() -> Iterator[Callable[[], str | None]]:
    """Replaces the standard streams by `SafeStream`; yields a function that returns why
    the standard output failed, or None. `display.screen` escapes the text of that
    stream itself."""
    before = sys.stdout, sys.stderr
    out = None
    if sys.stdout is not None:
        out = SafeStream(sys.stdout, escapes=False)
    error = None
    if sys.stderr is not None:
        error = SafeStream(sys.stderr, escapes=True)
    sys.stdout = cast(TextIO, out)
    sys.stderr = cast(TextIO, error)

    def failure() -> str | None:
        if out is None:
            return None
        out.flush()
        return out.failure

    try:
        yield failure
    finally:
        for stream in (out, error):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before
