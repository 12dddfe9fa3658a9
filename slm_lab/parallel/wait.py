"""The bounded wait for another process."""

import os
import time
from collections.abc import Callable

START_SECONDS = 60.0
"""How long a Session waits at most for the others to start: many processes share the
cores."""
LONGEST_SECONDS = 7 * 24 * 3600.0
"""The longest wait for a peer on this machine. It is a backstop: the parent detects
hangs, and its processes die with it."""


def wait_until(
    is_true: Callable[[], bool], seconds: float, nap: float, eager: float = 0.0
) -> bool:
    """Polls `is_true`; returns False if it stays false for `seconds`. For the first
    `eager` seconds it only yields its core between two polls, then it sleeps `nap`."""
    began = time.perf_counter()
    while not is_true():
        waited = time.perf_counter() - began
        if waited >= seconds:
            return False
        if waited < eager:
            os.sched_yield()
        else:
            time.sleep(nap)
    return True
