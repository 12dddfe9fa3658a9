"""The lock that lets only one process write to a run folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slm_lab.core.errors import UsageError, undone_on_failure
from slm_lab.core.files import open_own, read_file, refuse_links
from slm_lab.core.text import escape_line


class RunLock:
    """Held until `release`; the kernel frees it when the process dies, however it dies.
    Raises UsageError if another process holds it, or the file system has no locks;
    LabError if the folder contains links."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = open_own(folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = (
                escape_line(os.read(self._descriptor, 20).decode(errors="replace"))
                or "?"
            )
            self.release()
            raise UsageError(f"{folder} is being trained by process {holder}") from None
        except OSError as error:
            self.release()
            raise UsageError(
                f"{folder} cannot be locked ({error.strerror}): its file system has no "
                "locks (flock); two processes could write to it; choose a folder "
                "on another one, such as a local disk, with --data"
            ) from error
        with undone_on_failure(self.release):
            refuse_links(folder)
        os.truncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Frees the lock; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def names_locked(data_dir: Path) -> Iterator[None]:
    """Inside this context no other process may give a run in `data_dir` a name. Waits
    for one that does. Raises UsageError if the folder cannot be made or locked."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = open_own(data_dir / ".names.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {data_dir}: {error.strerror}"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise UsageError(f"cannot lock {data_dir}: {error.strerror}") from error
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process of this machine holds the lock of a run folder. Takes no lock
    itself."""
    file = folder / ".lock"
    try:
        pid = int(read_file(file))
        inode = file.stat().st_ino
        if pid <= 0:  # no process, but groups of them
            return False
        with suppress(PermissionError):  # another user's process
            os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return False
    try:
        locks = Path("/proc/locks").read_text()
    # another system: the process in the file lives, and may have the lock
    except OSError:
        return True
    return any(
        line.split()[5].endswith(f":{inode}") for line in locks.splitlines() if line
    )
