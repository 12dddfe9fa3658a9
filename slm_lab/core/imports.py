"""Faster imports of heavy libraries."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disables garbage collection during imports, which create no garbage.

    This shortens torch's import by a fifth. Imported objects stay frozen until the process ends.
    Then they are unfrozen, because nanobind reports remaining objects as leaks.
    """
    atexit.unregister(gc.unfreeze)  # registered once, however often this runs
    atexit.register(gc.unfreeze)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
