"""The lines that a command prints for its errors, and the code that it exits with."""

import errno
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from slm_lab import __version__
from slm_lab.cli.display.output import SafeStream, guarded_output
from slm_lab.cli.shell.parent_program import ParentProgram, notify_of
from slm_lab.cli.shell.signals import print_stop, stopped_like_ctrl_c
from slm_lab.core.errors import (
    LabError,
    MissingExtraError,
    MissingRunError,
    SpecError,
    TrainingFailed,
    UsageError,
    system_message,
)
from slm_lab.core.plugins import refuse_during_import
from slm_lab.core.process import children_killed, main_module_hidden
from slm_lab.core.text import error_summary, public_words

if TYPE_CHECKING:
    from slm_lab.studies.study import Study

FAILED = 1
BAD_INPUT = 2
MISSING = 3
"""There is no such run. A script may then begin one."""
INTERRUPTED = 130
BAD_INPUTS = (SpecError, UsageError, MissingExtraError)


def code_of_study(noun: str, study: "Study", has_failed: bool = False) -> int:
    """The exit code of a study, in which a training may have failed. Prints why the
    study, called by `noun`, has stopped itself."""
    if study.problem is not None:
        print(f"the {noun} has stopped: {study.problem}", file=sys.stderr)
        return FAILED
    if study.stopping:
        return INTERRUPTED
    if has_failed:
        return FAILED
    return 0


@contextmanager
def report_errors(notify: str | None = None) -> Iterator[ParentProgram]:
    """Exits with the code of an error that the user can act on. Prints it as one
    message, or sends it to a calling program. However the command ends, the user's
    command `notify` runs then."""
    caller = ParentProgram()
    code = 0
    stop_signals: list[int] = []
    try:
        # An environment may have started processes here.
        with stopped_like_ctrl_c() as stop_signals, children_killed():
            stream: object = sys.stdout
            if isinstance(stream, SafeStream) and stream.awaits_document:
                stream.keep_for_document()
            refuse_during_import("slm-lab")
            yield caller
    except typer.Exit as ended:
        code = ended.exit_code
    except (Exception, KeyboardInterrupt) as error:
        if stop_signals or isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
            print("stopped", file=sys.stderr)
            print_stop(caller.folder)
        else:
            code = _report(error, caller)
    notify_of(notify, caller.folder, code)
    if code:
        raise typer.Exit(code)


def _report(error: Exception, caller: ParentProgram) -> int:
    """Prints an error, or sends it to the calling program. Returns the exit code."""
    is_name = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
    if not isinstance(error, LabError):
        error = TrainingFailed(system_message(error) or _unexpected(error))
    if caller.exists:
        caller.send(error)
    else:
        print(error, file=sys.stderr)
    if isinstance(error, MissingRunError):
        return MISSING
    if is_name or isinstance(error, BAD_INPUTS):
        return BAD_INPUT
    return FAILED


def run_guarded(app: Callable[[], object]) -> NoReturn:
    """Runs a command, and exits with its code. If the standard output fails, the
    command still runs to its end and exits with FAILED."""
    code: str | int | None = 0
    with guarded_output() as output_failure, main_module_hidden():
        try:
            app()
        except SystemExit as ended:
            code = ended.code
        except typer.Exit as ended:
            code = ended.exit_code
        finally:
            reason = output_failure()
            if reason is not None:
                message = (
                    f"standard output: {reason}; printing stopped, the command itself "
                    "finished"
                )
                print(message, file=sys.stderr)
                code = code or FAILED
    sys.exit(code)


def _unexpected(error: Exception) -> str:
    """A line about a bug of the lab, whose traceback goes to a file."""
    what = f"unexpected {type(error).__name__}: {error_summary(error)}"
    trace = "".join(traceback.format_exception(error))
    command = shlex.join(["slm-lab", *public_words(sys.argv[1:])])
    try:
        handle, path = tempfile.mkstemp(
            prefix="slm_lab_error_", suffix=".txt", text=True
        )
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"slm-lab {__version__}\n{command}\n\n{trace}")
    except OSError:
        return f"{trace}{what}"
    return f"{what}\nthe traceback is in {path}; please report it, see CONTRIBUTING.md"
