"""Errors of an environment's own code: what they are raised as, and their text."""

import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from slm_lab.core.errors import LabError
from slm_lab.core.text import one_line
from slm_lab.env.interface import Env

logger = logging.getLogger(__name__)


class EnvironmentFailedError(LabError):
    """An environment raised an exception; the message is its traceback, with copy and
    action."""


class EnvironmentExitError(RuntimeError):
    """An environment tried to end the process, by `sys.exit` or another
    BaseException."""


def signal_ignored(*_: object) -> None:
    """A signal handler that does nothing. Programs that an environment starts would
    inherit SIG_IGN, but no handler."""


def as_exception(error: BaseException) -> BaseException:
    """The exception to raise in place of an environment's `error`: an
    EnvironmentExitError for one that no `except Exception` would catch.
    KeyboardInterrupt stays one where Ctrl-C may have raised it."""
    if isinstance(error, Exception):
        return error
    ignored = signal.SIG_IGN, signal_ignored
    if (
        isinstance(error, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) not in ignored
    ):
        return error
    message = f"the environment raised {one_line(error)}"
    if isinstance(error, SystemExit):
        message = f"the environment called sys.exit: {error.code}"
    exit_error = EnvironmentExitError(message.removesuffix(": None"))
    for note in getattr(error, "__notes__", ()):
        exit_error.add_note(note)
    return exit_error


def raise_if_exit(error: BaseException) -> None:
    """Raises the EnvironmentExitError that replaces an environment's `error`, if one
    does."""
    exception = as_exception(error)
    if exception is not error:
        raise exception from error


def close_all(closes: Iterable[Callable[[], object]], name: str) -> None:
    """Calls every function of `closes`, which close environments of `name`. What they
    raise is one warning in the log: a run never ends because an environment cannot be
    closed."""
    failures: list[BaseException] = []
    for close in closes:
        try:
            close()
        except BaseException as error:
            failures.append(as_exception(error))
            if not isinstance(failures[-1], Exception):  # Ctrl-C
                raise
    if failures:
        warn_of_close(name, one_line(failures[0]))


@contextmanager
def closing_env(env: Env) -> Iterator[Env]:
    """The environment, closed at the end; see `close_all`."""
    try:
        yield env
    finally:
        close_all([env.close], str(env))


def warn_of_close(name: str, why: str) -> None:
    """Logs that `close` of an environment raised an exception."""
    logger.warning("close() of %s raised %s; what it holds may stay open", name, why)
