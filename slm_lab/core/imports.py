"""How heavy libraries are imported."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Imports without garbage collection, which would look for garbage where there is none.

    Torch's import takes a fifth less time so. What has been imported is not looked through again
    before the process ends; then it is, because nanobind reports what is left over as leaks.
    """
    atexit.unregister(gc.unfreeze)  # once, however often this is done
    atexit.register(gc.unfreeze)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
