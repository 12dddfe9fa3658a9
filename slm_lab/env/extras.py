"""Imports what the optional dependencies of the lab install, at the place where it is
used. The error of a missing one has the command that installs it."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slm_lab.core.errors import MissingExtraError
from slm_lab.core.registry import import_failure


def require(module: str, extra: str) -> None:
    """Raises MissingExtraError if `module`, which the `extra` installs, is missing."""
    fault = missing(module, extra)
    if fault is not None:
        raise MissingExtraError(fault)


def missing(module: str, extra: str) -> str | None:
    """The line that names the `extra` if `module`, which it installs, is missing; None
    if it is there. A folder without code, which an uninstalled package may leave, does
    not count: it has no origin."""
    try:
        module_spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package around it is missing
        module_spec = None
    if module_spec is not None and module_spec.origin is not None:
        return None
    return f"{module} is not installed; run: {pip_command(extra)}"


def import_extra(module: str, extra: str) -> Any:
    """The module `module`, which the `extra` installs. Raises MissingExtraError if it
    is missing, or does not import: a missing dependency may raise any exception."""
    require(module, extra)
    try:
        with known_warnings_ignored():
            return importlib.import_module(module)
    except Exception as error:
        why = f"{module} does not import: {import_failure(error)}"
        raise MissingExtraError(f"{why}; run: {pip_command(extra)}") from error


def pip_command(extra: str) -> str:
    """The command that installs an `extra` of the lab."""
    return f'pip install "slm-lab[{extra}]"'


@contextmanager
def known_warnings_ignored() -> Iterator[None]:
    """Ignores warnings of imports and constructors of environments that users cannot
    fix."""
    with warnings.catch_warnings():
        # Gymnasium: a float64 Box is stored as float32.
        warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")
        # Gymnasium: it opens a window for an environment that only has images.
        warnings.filterwarnings(
            "ignore", message=".*for an environment that doesn't natively.*"
        )
        # PettingZoo 1.27, at an import of the module of an environment.
        warnings.filterwarnings("ignore", "The old environment creation API")
        # SWIG, on the import of Box2D; as an error it would crash the interpreter.
        warnings.filterwarnings(
            "ignore", "builtin type .* has no __module__", DeprecationWarning
        )
        yield
