"""Recognises errors of the system: limits, each with the fix, disks and permissions."""

import errno

from slm_lab.core.errors import with_cut_words
from slm_lab.core.text import in_line

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
"""Error numbers of a full disk, missing permission, a name that no file can have, a
disk or network that fails, and a file system without locks."""


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


def system_message(error: Exception) -> str | None:
    """A line about a limit, a full disk or a missing permission; None for another
    error."""
    limit = limit_reached(error)
    if limit is not None:
        return limit
    if not isinstance(error, OSError) or error.errno not in OF_THE_SYSTEM:
        return None
    place = with_cut_words(str(error.filename or "in the run folder"))
    return f"{error.strerror}: {in_line(place)}"
