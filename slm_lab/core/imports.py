"""How heavy libraries are imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Imports without garbage collection, which would look for garbage where there is none.

    Torch's import takes a fifth less time so. What has been imported is never looked through again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
