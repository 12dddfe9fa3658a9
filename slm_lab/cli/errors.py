"""From an error to a message and an exit code."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from slm_lab.cli.output import guarded_output
from slm_lab.core.errors import LabError, MissingExtraError, SpecError, UsageError
from slm_lab.core.limits import limit_reached

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


@contextmanager
def report_errors() -> Iterator[None]:
    """Shows what a user can act on as one message, and ends with the code that says so.

    Where the standard output cannot be written the command is carried out, and its code is FAILED.
    """
    with guarded_output() as output_failure:
        try:
            yield
        except (SpecError, UsageError, MissingExtraError) as error:
            _fail(str(error), BAD_INPUT)
        except LabError as error:
            _fail(str(error), FAILED)
        except KeyboardInterrupt:
            _fail("stopped", INTERRUPTED)
        except (OSError, MemoryError, RuntimeError, ImportError) as error:
            _fail(_told(error), FAILED)
        finally:
            why = output_failure()
            if why is not None:
                print(
                    f"standard output: {why}; no more was printed, all else was done",
                    file=sys.stderr,
                )
        if why is not None:
            raise typer.Exit(FAILED)


def _told(error: Exception) -> str:
    """What the system does not give, in one line. Raises an error that is a fault of the lab."""
    limit = limit_reached(error)
    if limit is not None:
        return limit
    if not isinstance(error, OSError) or error.errno not in NOT_GIVEN:
        raise error
    return f"{error.strerror}: {error.filename or 'while writing to the run folder'}"


NOT_GIVEN = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)
"""No room, or no permission."""


def _fail(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
