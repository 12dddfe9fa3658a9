"""A disk that fails, or a kill, at any call that touches the disk."""

import errno
import os
from collections.abc import Callable
from contextlib import contextmanager

import pytest

from slm_lab.storage import checkpoint

CALLS = ["open", "write", "fsync", "replace"]


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it."""


def full_disk():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Faults:
    """Counts calls of the chosen kinds and raises at the n-th, before or after it is
    done."""

    def __init__(
        self, error: Callable[[], BaseException], kinds, at: int, after: bool
    ) -> None:
        self.error = error
        self.kinds = kinds
        self.at = at
        self.after = after
        self.seen = 0
        self.calls = []

    def around(self, kind, call):
        def faulty(*args, **kwargs):
            self.calls.append(kind)
            self.seen += kind in self.kinds
            hit = kind in self.kinds and self.seen == self.at
            if hit and not self.after:
                raise self.error()
            result = call(*args, **kwargs)
            if hit:
                if kind == "open":
                    result.close()
                raise self.error()
            return result

        return faulty


class FaultyStream:
    """A file whose writes are counted."""

    def __init__(self, stream, faults: Faults) -> None:
        self._stream = stream
        self.write = faults.around("write", self.write_content)

    def write_content(self, content):
        return self._stream.write(content)

    def flush(self):
        self._stream.flush()

    def fileno(self):
        return self._stream.fileno()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._stream.close()


@contextmanager
def faults(error, kinds=CALLS, at=0, after=False):
    injected = Faults(error, kinds, at, after)
    new_file = checkpoint.new_file

    def faulty_file(path):
        return FaultyStream(injected.around("open", new_file)(path), injected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "new_file", faulty_file)
        patch.setattr(os, "fsync", injected.around("fsync", os.fsync))
        patch.setattr(os, "replace", injected.around("replace", os.replace))
        yield injected
