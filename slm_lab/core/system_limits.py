"""Recognises errors caused by system limits; one line each, with the fix."""

import errno

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
