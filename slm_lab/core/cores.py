"""The number of usable CPU cores."""

import os


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine if the system cannot tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS and Windows have none
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
