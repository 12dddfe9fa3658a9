"""Errors shown to users. Each names the place, the given value and the fix. So do the
messages of errors that system limits cause."""

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import override

from slm_lab.core.text import escape_line

MAX_PRINTED = 100
"""Maximum number of problems printed for one spec."""
LONGEST_VALUE = 60
LONGEST_PATH = 250
LONGEST_MESSAGE = 2000
"""Letters of a value, of its path, and of what is allowed there, in the line of a
problem."""
LONGEST_WORD = 1000
"""The most letters of a word in a message, such as a name or a path that the user
typed. A longer word is cut to LONGEST_VALUE."""


class LabError(Exception):
    """An error that the user can fix; shown as one message, never as a traceback."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a spec: the dotted `path`, and what is allowed there.
    `value` is the value given there; `...` if there is none to show."""

    path: str
    message: str
    value: object = ...

    @override
    def __str__(self) -> str:
        setting = ""
        if self.value is not ...:
            setting = f" = {_shorten(self.value)}"
        path = _cut(self.path, LONGEST_PATH)
        message = _cut(self.message, LONGEST_MESSAGE)
        return f"{path}{setting}: {message}"


def with_cut_words(text: str) -> str:
    """The text, with words of LONGEST_WORD letters and more cut."""
    return re.sub(
        rf"[^\s:'\"]{{{LONGEST_WORD},}}",
        lambda word: _cut(word[0], LONGEST_VALUE),
        text,
    )


class SpecError(LabError):
    """A spec that cannot be run as written. Carries all of its problems at once."""

    def __init__(self, where: str, problems: Sequence[Problem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{with_cut_words(where)} has {count} problem{'' if count == 1 else 's'}"
        lines = [f"  {problem}" for problem in self.problems[:MAX_PRINTED]]
        if count > MAX_PRINTED:
            lines.append(f"  and {count - MAX_PRINTED} more")
        super().__init__("\n".join([head, *lines]))

    @classmethod
    def of(
        cls, where: str, path: str, message: str, value: object = ...
    ) -> "SpecError":
        """The error of a single problem."""
        return cls(where, [Problem(path, message, value)])

    @override
    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, tuple[Problem, ...]]]:
        return SpecError, (self.where, self.problems)


class UsageError(LabError):
    """A command line that cannot be executed as given (exit code 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(with_cut_words(message))


class MissingRunError(UsageError):
    """There is no run of the name that the user gave (exit code 3)."""


class MissingExtraError(LabError):
    """A part needs a package that is not installed; the message names the pip
    command."""


class CheckpointError(LabError):
    """A checkpoint could not be written or read; earlier checkpoints are untouched."""


class UnusableCheckpointError(CheckpointError):
    """A checkpoint cannot be read, or does not match the spec; the message names the
    fix."""


class NonFiniteLossError(LabError):
    """A loss or gradient became NaN or infinite; the message carries the batch
    statistics."""


class TrainingFailed(LabError):  # noqa: N818 - a result of `slm_lab.train`
    """A training that a Python program started has failed; carries the reason of each
    Session.

    >>> absurd = {"agent.net.optim_spec.lr": 1e30}
    >>> try:
    ...     slm_lab.train("small.json", sets=absurd, quiet=True)
    ... except slm_lab.TrainingFailed as error:
    ...     print(str(error)[:9])
    Session 0"""


class PeerLostError(LabError):
    """A peer did not reach a barrier in time, or its connection broke."""


@contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Calls `undo` if the block inside raises anything."""
    try:
        yield
    except BaseException:
        undo()
        raise


def _shorten(value: object) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    if value is None:
        text = "null"
    return _cut(text, LONGEST_VALUE)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return text[: longest - 1] + "…"


PROCESSES = (
    "no more processes or threads can be started; raise the limit (ulimit -u), or "
    "lower meta.max_session or env.num_envs"
)
FILES = (
    "too many files are open; raise ulimit -n, or lower meta.max_session or "
    "env.num_envs"
)
MEMORY = (
    "there is no memory left; raise the limit (ulimit -v) if there is one, or lower "
    "meta.max_session, env.num_envs or the memory's max_size"
)

_NUMBERS = {
    errno.EAGAIN: PROCESSES,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.ENOMEM: MEMORY,
}
_WORDS = {
    "can't start new thread": PROCESSES,
    "Too many open files": FILES,
    "allocate memory": MEMORY,
    "not enough memory": MEMORY,
    "failed to map segment": MEMORY,
}
"""Text in messages of Python, torch and the dynamic loader."""


def limit_reached(error: BaseException) -> str | None:
    """The message of the limit that caused an error, directly or by chaining; None if
    none did."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return MEMORY
        if isinstance(seen, OSError) and seen.errno in _NUMBERS:
            return _NUMBERS[seen.errno]
        if isinstance(seen, OSError | RuntimeError | ImportError):
            for words, limit in _WORDS.items():
                if words in str(seen):
                    return limit
        seen = seen.__cause__ or seen.__context__
    return None


OF_THE_SYSTEM = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
    *(
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENXIO,
        errno.ENODEV,
        errno.EREMOTEIO,
    ),
    *(errno.ENOLCK, errno.EOPNOTSUPP),
)
"""Error numbers of a disk that is full, missing permission, a name that no file can
have, a disk or network that fails, a file system without locks."""


def system_message(error: Exception) -> str | None:
    """A line about a limit, a full disk or a missing permission; None for another
    error."""
    limit = limit_reached(error)
    if limit is not None:
        return limit
    if not isinstance(error, OSError) or error.errno not in OF_THE_SYSTEM:
        return None
    place = with_cut_words(str(error.filename or "in the run folder"))
    return f"{error.strerror}: {escape_line(place)}"
