"""Makes a fork server, which imports this first, die with the process that started it.

Otherwise it would live as long as any process that it forked. One that hangs in its
environment does not notice that its parent died, and would never end."""

import os
import sys
from types import TracebackType

from slm_lab.core.process import die_with_parent


def _end_quietly(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Prints nothing on EOFError: the process that started it has failed, and reports
    why."""
    if not issubclass(kind, EOFError):
        sys.__excepthook__(kind, error, traceback)


die_with_parent(os.getppid())
sys.excepthook = _end_quietly
