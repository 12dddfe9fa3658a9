"""How many cores there are to run on."""

import os


def usable_cores() -> int:
    """Cores that this process may run on; those of the machine where the system cannot say."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS and Windows have none
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
