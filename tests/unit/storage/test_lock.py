"""Two processes must not train in one run folder."""

import os

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.storage.lock import RunLock, is_locked


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


@pytest.mark.parametrize(("error", "lives"), [(PermissionError, True), (ProcessLookupError, False)])
def test_a_process_of_another_user_holds_a_lock_too(tmp_path, monkeypatch, error, lives):
    lock = RunLock(tmp_path)
    assert is_locked(tmp_path)

    def kill(pid, signal):
        raise error

    monkeypatch.setattr(os, "kill", kill)
    assert is_locked(tmp_path) is lives
    lock.release()
