"""Two processes must not train in one run folder."""

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.storage.lock import RunLock


def test_a_folder_is_locked_until_it_is_released(tmp_path):
    first = RunLock(tmp_path)
    with pytest.raises(UsageError, match=r"is being trained by process \d+"):
        RunLock(tmp_path)
    first.release()
    first.release()
    RunLock(tmp_path).release()


def test_folders_are_locked_one_by_one(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    locks = [RunLock(tmp_path / name) for name in "ab"]
    for lock in locks:
        lock.release()
