"""What an error says in one line."""

import re
from collections.abc import Iterable

_TRACEBACK = "Traceback (most recent call last):"
_SESSION = re.compile(r"Session \d+: ")


def headline(error: str) -> str:
    """The one line of an error that says what happened.

    Of a traceback it is that of the last exception in it, as "ValueError: …"; what follows, such as
    notes, is left out. Of another text it is the first line. A leading "Session 0: " is kept.
    """
    whole = error.strip()
    match = _SESSION.match(whole)
    session = match[0] if match else ""
    lines = whole.removeprefix(session).strip().splitlines() or [""]
    if "Traceback" not in lines[0]:
        return f"{session}{lines[0]}"
    return session + (_last_exception(lines) or lines[0])


def _last_exception(lines: Iterable[str]) -> str:
    """The line that names it: the first after the frames of the last traceback, which are indented;
    "" if there is none."""
    found, among_frames = "", False
    for line in lines:
        if line.startswith(_TRACEBACK):
            among_frames = True
        elif among_frames and line and not line[0].isspace():
            found, among_frames = line, False
    return found
