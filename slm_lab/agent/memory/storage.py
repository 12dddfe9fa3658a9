"""Where the arrays of a memory are stored."""

import errno
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
    """An ordinary array. Raises LabError if there is not enough memory."""
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError) as error:  # ValueError: more than can be indexed
        size = math.prod(shape) * dtype.itemsize
        raise LabError(
            "agent.memory.max_size: there is no memory for an array of "
            f"{size / 1e6:,.1f} MB; "
            'lower it, or use "storage": "memmap"'
        ) from error


def mapped_in(folder: Path) -> Allocate:
    """Makes arrays in files in `folder`, which the system keeps in memory as far as
    there is room. The files have no name, so that the system frees them however the
    process ends. Raises LabError if there is not enough space."""

    def allocate(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                _reserve(file.fileno(), max(size, 1))
                mapped = mmap.mmap(file.fileno(), max(size, 1))
        except OSError as error:
            raise LabError(
                f'agent.memory.storage = "memmap": cannot keep {size / 1e6:,.1f} MB '
                f"in {folder}: "
                f"{error.strerror or error}; make room there, lower "
                "agent.memory.max_size, "
                'or use "memory"'
            ) from error
        return np.frombuffer(mapped, dtype, count=math.prod(shape)).reshape(shape)

    return allocate


def _reserve(descriptor: int, size: int) -> None:
    """Makes an empty file `size` bytes long and reserves its space on the disk. A page
    without space kills the process when it is first written. Where the system cannot
    reserve space (macOS), only the free space is checked. Raises OSError."""
    take_room = getattr(os, "posix_fallocate", None)
    if take_room is not None:
        take_room(descriptor, 0, size)
        return
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, size)
