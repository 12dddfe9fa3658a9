"""From an error to a message and an exit code."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from slm_lab.core.errors import LabError, MissingExtraError, SpecError, UsageError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


@contextmanager
def report_errors() -> Iterator[None]:
    """Shows what a user can act on as one message, and ends with the code that says so."""
    try:
        yield
    except (SpecError, UsageError, MissingExtraError) as error:
        _fail(str(error), BAD_INPUT)
    except LabError as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail("stopped", INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        _fail(f"{error.strerror}: {error.filename or 'while writing to the run folder'}", FAILED)


def _fail(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
