"""Tensors that several processes see."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from slm_lab.core.errors import LabError

SHARED = Path("/dev/shm")
"""Where shared memory is on Linux."""
MEMORY = Path("/proc/meminfo")
"""Where Linux says how much memory there is."""
COPIES = 2
"""Of a tensor that there are for a moment while it is moved into shared memory."""


def check_room(num_bytes: int, what: str, fix: str) -> None:
    """Raises LabError where shared memory has no room for `num_bytes` of something, or memory none
    to fill them; `fix` says what would take less."""
    if SHARED.exists():
        free = shutil.disk_usage(SHARED).free
        if num_bytes > free:
            raise LabError(
                f"{what} take {num_bytes:,} bytes of shared memory, and {SHARED} has {free:,}; "
                f"{fix}"
            )
    available = _available_memory()
    if available is not None and COPIES * num_bytes > available:
        raise LabError(
            f"{what} take {num_bytes:,} bytes, {COPIES} times as much for a moment, and "
            f"{available:,} bytes of memory are available; {fix}"
        )


def _available_memory() -> int | None:
    """Bytes that processes may still have, without swapping; None where nobody says."""
    if not MEMORY.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


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
    for path in SHARED.glob(f"torch_{os.getpid()}_*"):
        with suppress(OSError):
            path.unlink()
