"""Where the arrays of a memory lie."""

import math
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array

Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[np.generic]], Array]
"""Makes an array of zeros of a shape and a type."""


def in_memory(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An ordinary array."""
    return np.zeros(shape, dtype)


def mapped_in(folder: Path) -> Allocate:
    """Makes arrays in files in `folder`, which the system keeps in memory as far as there is room.

    The files have no name, so that the system frees them whenever and however the process ends.
    """

    def allocate(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                # A page that finds no room on the disk when it is first written kills the process.
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
                mapped = mmap.mmap(file.fileno(), max(size, 1))
        except OSError as error:
            raise LabError(
                f'agent.memory.storage = "memmap": cannot keep {size / 1e6:,.1f} MB in {folder}: '
                f"{error.strerror or error}; make room there, lower agent.memory.max_size, "
                'or use "memory"'
            ) from error
        return np.frombuffer(mapped, dtype, count=math.prod(shape)).reshape(shape)

    return allocate
