"""Tensors that several processes see."""

import os
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from slm_lab.core.errors import LabError


def into_shared_memory(tensor: Tensor) -> Tensor:
    """A copy on the CPU that spawned processes see. Raises LabError where there is no room."""
    try:
        shared: Tensor = tensor.detach().cpu().clone().share_memory_()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        clear_left_over()
        size = tensor.numel() * tensor.element_size()
        raise LabError(
            f"cannot put {size:,} bytes into shared memory (/dev/shm on Linux), where Sessions "
            f"that train together meet: {error}; make room there, or give the container more of it"
        ) from error
    return shared


def clear_left_over() -> None:
    """torch leaves the file behind for which there was no room; it keeps no other by name."""
    for path in Path("/dev/shm").glob(f"torch_{os.getpid()}_*"):
        with suppress(OSError):
            path.unlink()
