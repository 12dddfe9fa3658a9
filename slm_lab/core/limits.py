"""Limits of the system that an error comes from, in one line with the fix."""

import errno

PROCESSES = (
    "no more processes or threads can be started; raise the limit (ulimit -u), or lower "
    "meta.max_session or env.num_envs"
)
FILES = (
    "too many files are open; raise the limit (ulimit -n), or lower meta.max_session or "
    "env.num_envs"
)
MEMORY = (
    "there is no memory left; raise the limit (ulimit -v) where there is one, or lower "
    "meta.max_session, env.num_envs or the memory's max_size"
)

_BY_NUMBER = {
    errno.EAGAIN: PROCESSES,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.ENOMEM: MEMORY,
}
_BY_WORDS = {
    "can't start new thread": PROCESSES,
    "Too many open files": FILES,
    "allocate memory": MEMORY,
    "not enough memory": MEMORY,
    "failed to map segment": MEMORY,
}
"""What messages of Python, torch and the loader of libraries say."""


def limit_reached(error: BaseException) -> str | None:
    """Which limit an error, or one that has caused it, comes from; None where from none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return MEMORY
        if isinstance(seen, OSError) and seen.errno in _BY_NUMBER:
            return _BY_NUMBER[seen.errno]
        if isinstance(seen, OSError | RuntimeError | ImportError):
            for words, limit in _BY_WORDS.items():
                if words in str(seen):
                    return limit
        seen = seen.__cause__ or seen.__context__
    return None
