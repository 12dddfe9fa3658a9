import errno
import os

import pytest

from slm_lab.core.errors import limit_reached


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "ulimit -n"),
        (
            RuntimeError("unable to open shared memory object: Too many open files"),
            "ulimit -n",
        ),
        (MemoryError(), "ulimit -v"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "ulimit -v"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 8000 bytes"),
            "ulimit -v",
        ),
        (
            ImportError("libtorch.so: failed to map segment from shared object"),
            "ulimit -v",
        ),
    ],
)
def test_a_limit_of_the_system_is_named_in_one_line_with_the_fix(error, words):
    message = limit_reached(error)
    assert words in message
    assert len(message.splitlines()) == 1


def test_the_cause_of_an_error_counts_as_well():
    error = ValueError("no array")
    error.__cause__ = MemoryError("Unable to allocate 8.00 EiB")
    assert "ulimit -v" in limit_reached(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError(errno.ENOSPC, "full"),
        RuntimeError("shape"),
        KeyError("k"),
    ],
)
def test_another_error_comes_from_no_limit(error):
    assert limit_reached(error) is None
