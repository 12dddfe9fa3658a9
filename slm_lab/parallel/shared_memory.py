"""Tensors in memory that several processes share."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike
from torch import Tensor

from slm_lab.core.errors import LabError

SHARED = Path("/dev/shm")
"""Mount point of shared memory on Linux."""
MEMINFO = Path("/proc/meminfo")
COPIES = 2
"""Copies of a tensor that exist briefly while it moves into shared memory."""
ALIGNMENT = 64
"""Bytes of a cache line."""


def aligned_record(
    arrays: Mapping[str, tuple[DTypeLike, tuple[int, ...]]],
) -> np.dtype[np.void]:
    """A record of arrays with these types and shapes, each from the start of a cache
    line."""
    formats = [np.dtype(array) for array in arrays.values()]
    ends = list(
        accumulate(ALIGNMENT * -(-dtype.itemsize // ALIGNMENT) for dtype in formats)
    )
    names = list(arrays)
    offsets = [0, *ends[:-1]]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": ends[-1]}
    )


def check_room(num_bytes: int, what: str, fix: str) -> None:
    """Raises LabError if `num_bytes` do not fit into shared memory or into available
    memory. `what` names the data and `fix` the remedy in the message."""
    if SHARED.exists():
        free = shutil.disk_usage(SHARED).free
        if num_bytes > free:
            raise LabError(
                f"{what} take {num_bytes:,} bytes of shared memory, but {SHARED} has "
                f"{free:,}; {fix}"
            )
    available = _available_memory()
    if available is not None and COPIES * num_bytes > available:
        raise LabError(
            f"{what} take {num_bytes:,} bytes, briefly {COPIES} times as much, but "
            f"only {available:,} bytes of memory are available; {fix}"
        )


def _available_memory() -> int | None:
    """Bytes available without swapping; None if the system does not report them."""
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def into_shared_memory(tensor: Tensor) -> Tensor:
    """A copy on the CPU that processes share. Raises LabError if there is no room."""
    try:
        shared: Tensor = tensor.detach().cpu().clone().share_memory_()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        clear_left_over()
        size = tensor.numel() * tensor.element_size()
        raise LabError(
            f"cannot put {size:,} bytes into shared memory (/dev/shm on Linux), which "
            f"Sessions that train together use: {error}; make room there, or give the "
            "container more of it"
        ) from error
    return shared


def clear_left_over() -> None:
    """Deletes the file that torch leaves behind if there was no room; torch unlinks all
    others."""
    for path in SHARED.glob(f"torch_{os.getpid()}_*"):
        with suppress(OSError):
            path.unlink()
