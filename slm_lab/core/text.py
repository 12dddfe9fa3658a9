"""Short text for people: numbers, tables, and errors in one line."""

import re
import traceback
from collections.abc import Iterable, Sequence
from math import isnan
from typing import NamedTuple

NOTIFY = "--notify"
HIDDEN = "…"
"""The option whose text is not recorded, and what is recorded in its place."""
_TRACEBACK = "Traceback (most recent call last):"
_GROUP = f"Exception Group {_TRACEBACK}"
_MARGIN = re.compile(r"^\s*[|+] ?")
_SESSION = re.compile(r"Session \d+: ")
LONGEST_ERROR = 20_000
"""Letters of an error's text; of a longer one, the first and the last half are kept."""


class TextTable(NamedTuple):
    """Cells as they are shown; the column `words` is aligned to the left, others to the
    right. A narrow terminal leaves columns out, in the order of `spare`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 0
    spare: tuple[str, ...] = ()


def significant(value: float | None) -> str:
    """A number with three significant digits; large numbers keep all integer digits.
    Examples: 1,234, 429, 12.3, 0.738, 0.000123; a dash for None and NaN."""
    if value is None or isnan(value):
        return "–"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value + 0.0:#.3g}" if value else "0"


def count_text(number: int, noun: str) -> str:
    """ "1 seed", "2 seeds", "12 000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}".replace(",", " ")


def with_spread(mean: float | None, std: float | None) -> str:
    """ "428 ± 12.3"; without a deviation only the mean."""
    return significant(mean) + ("" if std is None else f" ± {significant(std)}")


def printable(text: str) -> str:
    """The text with all control characters escaped except line ends and tabs. Names and
    keys of files may contain any character."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else char.encode("unicode_escape").decode()
        for char in text
    )


def shortened(text: str, letters: int) -> str:
    """The text, shortened to at most so many letters: it ends with "…" where some are
    left out."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1].rstrip(' ,')}…"


def escape_line(text: str) -> str:
    """The text in one line, with all control characters escaped."""
    return printable(text.replace("\n", "\\n").replace("\t", "\\t"))


def public_words(command: Sequence[str]) -> list[str]:
    """The words of a command without the shell command of `--notify`, which may hold a
    secret."""
    words: list[str] = []
    for word in command:
        if words and words[-1] == NOTIFY:
            words.append(HIDDEN)
        elif word.startswith(f"{NOTIFY}="):
            words.append(f"{NOTIFY}={HIDDEN}")
        else:
            words.append(word)
    return words


def duration_text(seconds: float) -> str:
    """ "1:02:03" or "2:03"; zero if it is negative."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def error_summary(error: object) -> str:
    """The line of an error that says what happened. In a traceback it is the line of
    the last exception, such as "ValueError: …", without notes. Otherwise it is the
    first line. A leading "Session 0: " is kept."""
    whole = str(error).strip()
    match = _SESSION.match(whole)
    session = ""
    if match:
        session = match[0]
    lines = whole.removeprefix(session).strip().splitlines() or [""]
    if "Traceback" not in lines[0]:
        return f"{session}{lines[0]}"
    if _GROUP in whole:
        whole, *_ = whole.partition("+-+")  # before the exceptions of the group
        lines = [
            _MARGIN.sub("", line).replace(_GROUP, _TRACEBACK)
            for line in whole.splitlines()
        ]
    return session + (_last_exception(lines) or lines[0])


def _last_exception(lines: Iterable[str]) -> str:
    """The first line after the indented frames of the last traceback; "" if there is
    none."""
    error_line = ""
    among_frames = False
    for line in lines:
        if line.startswith(_TRACEBACK):
            among_frames = True
        elif among_frames and line and not line[0].isspace():
            error_line = line
            among_frames = False
    return error_line


def error_text(error: BaseException) -> str:
    """The traceback of an error, with its notes; `bounded`."""
    return bounded("".join(traceback.format_exception(error)).strip())


def bounded(text: str) -> str:
    """The text without lone surrogates, cut in its middle to about LONGEST_ERROR
    letters."""
    if len(text) > LONGEST_ERROR:
        left_out = len(text) - LONGEST_ERROR
        half = LONGEST_ERROR // 2
        text = f"{text[:half]}\n… {left_out:,} letters are left out …\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(error: BaseException) -> str:
    """The type and the message of an error in one line."""
    try:
        text = str(error)
    except Exception:  # its class is the environment's, too
        text = "it has no text"
    return " ".join(bounded(f"{type(error).__name__}: {text}").split()).removesuffix(
        ":"
    )


def number_or_dash(value: float | None, form: str) -> str:
    """A number, or a dash for None and NaN."""
    if value is None or isnan(value):
        return "–"
    return format(value, form)


def short_count(count: int) -> str:
    """A round number with its unit, such as 200k or 1.5M; any other number in full."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if size <= count < 1000 * size and count % (size // 100) == 0:
            return f"{count / size:g}{unit}"
    return f"{count:,}"
