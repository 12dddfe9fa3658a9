"""For the fork server alone, which imports it first: it dies with the process that started it.

Else it would live on as long as one of the workers that it has forked, and a worker that hangs in
its environment, and so does not see that nobody listens any more, would never end.
"""

import os
import sys
from types import TracebackType

from slm_lab.core.process import die_with_parent


def _end_quietly(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Prints nothing where the process that started it has failed, which will say why."""
    if not issubclass(kind, EOFError):
        sys.__excepthook__(kind, error, traceback)


die_with_parent(os.getppid())
sys.excepthook = _end_quietly
