"""Parts from outside this package, made known by importing the module that registers them."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from slm_lab.core.errors import UsageError
from slm_lab.core.registry import import_failure


def import_plugins(modules: Sequence[str]) -> None:
    """Imports the modules that register parts from outside this package.

    A module that lies in the working directory is found as it would be by `python -m`. Raises
    UsageError when one does not import.
    """
    here = str(Path.cwd())
    if modules and here not in sys.path:
        sys.path.insert(0, here)
    for module in modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise UsageError(f"--import {module}: {import_failure(error)}") from error
