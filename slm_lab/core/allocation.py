"""How a training process keeps its memory."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE = 32 << 20
"""Bytes; the largest that glibc lets the threshold be."""
KEPT = 256 << 20
"""Bytes at the end of the heap that may stay unused."""


def keep_freed_memory() -> None:
    """Has what is freed stay with the process, up to KEPT bytes, where the C library is glibc.

    By default whatever has more than 128 KiB goes back to the system at once, and comes anew with
    its pages to be cleared: convolutions free and ask for tens of megabytes in every minibatch.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, with rules of its own
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, KEPT)
