"""What becomes of a process when the one that has started it is gone."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, however that happens (Linux).

    `parent` is the process that should be the parent: another one is only there when it has died
    before. The kernel means the thread that started the process, so that should be the main one.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
