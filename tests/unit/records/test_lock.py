"""Two processes must not train in one run folder."""

import errno
import os

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records import lock as lock_module
from slm_lab.records.lock import RunLock, is_locked
from slm_lab.records.run_source import RunSource
from slm_lab.studies.resume import begin_run
from tests.faults.lab import call_here, write_spec
from tests.support import ppo
from tests.unit.records.runs import write_ended


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


@pytest.mark.parametrize(
    ("error", "lives"), [(PermissionError, True), (ProcessLookupError, False)]
)
def test_a_process_of_another_user_holds_a_lock_too(
    tmp_path, monkeypatch, error, lives
):
    lock = RunLock(tmp_path)
    assert is_locked(tmp_path)

    def kill(pid, signal):
        raise error

    monkeypatch.setattr(os, "kill", kill)
    assert is_locked(tmp_path) is lives
    lock.release()


ODD = {
    "too large": b"9" * 20,
    "above 2^31": b"2147483649",
    "negative": b"-1",
    "nothing": b"",
    "zeros": b"\0" * 20,
    "no text": b"\xff\xfe12",
    "words": "a process\n".encode("utf-16"),
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_an_odd_lock_file_is_no_lock_and_hides_no_run(tmp_path, content):
    for name in ("one", "two"):
        write_ended(tmp_path, name)
    folder = next(tmp_path.glob("one_*"))
    (folder / ".lock").write_bytes(content)
    assert not is_locked(folder)
    for words in (["runs"], ["tidy", "--failed"], ["doctor", "one"]):
        done = call_here(["slm-lab", *words, "--data", str(tmp_path)], tmp_path)
        assert done.code == 0, done.err
    RunLock(folder).release()


def test_the_holder_of_a_lock_is_named_in_one_line_whatever_its_file_holds(tmp_path):
    held = RunLock(tmp_path)
    (tmp_path / ".lock").write_bytes(b"\xff\x1b[2J\n1")
    with pytest.raises(
        UsageError, match=r"is being trained by process .\\x1b\[2J\\n1$"
    ):
        RunLock(tmp_path)
    held.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_one_line_and_no_run_folder_is_made(
    tmp_path, monkeypatch, number
):
    def flock(descriptor, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock_module.fcntl, "flock", flock)
    file = write_spec(tmp_path, ppo())
    data = tmp_path / "data"
    source = RunSource(str(file), "small", data_dir=data)
    with pytest.raises(
        UsageError, match=r"its file system has no locks .* with --data"
    ) as caught:
        begin_run(source, source.load(), "train")
    assert str(data) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(data.iterdir()) == []
