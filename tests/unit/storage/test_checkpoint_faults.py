"""A checkpoint is interrupted at every call that touches the disk, one after
another."""

import errno
import os

import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError
from slm_lab.metrics.writer import Extent
from slm_lab.storage import checkpoint
from slm_lab.storage.checkpoint import CheckpointStore
from tests.unit.storage.disk import Killed, faults, full_disk

PREFIX = "ppo_t0_s0"
FILE = ["open", "write", "fsync"]


def state(frame):
    return {"frame": frame, "weights": np.full(1000, frame, np.float32)}


def save(store, frame):
    parts = {"state": state(frame), "best": state(frame)}
    store.save(frame, {"rows.csv": Extent(frame, "")}, parts)


def loaded_frames(folder):
    """The frame of the manifest and of every part it names, as a fresh process reads
    them."""
    store = CheckpointStore(folder, PREFIX)
    manifest = store.manifest()
    return [
        manifest.frame,
        *(store.load(manifest, part)["frame"] for part in manifest.files),
    ]


def calls_of_a_save(folder):
    store = CheckpointStore(folder, PREFIX)
    save(store, 1)
    with faults(full_disk) as counted:
        save(store, 2)
    return counted.calls


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return calls_of_a_save(tmp_path_factory.mktemp("counted"))


def test_every_file_is_synced_before_the_rename_and_the_folder_after_it(calls):
    """The files: state, best agent, and the manifests of this checkpoint and of the one
    before."""
    assert calls == [*4 * FILE, "replace", "replace", "fsync"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 13))
def test_a_full_disk_before_the_rename_leaves_the_last_checkpoint_alone(
    tmp_path, calls, at, after
):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert "replace" not in calls[:at]
    with (
        faults(full_disk, at=at, after=after),
        pytest.raises(CheckpointError) as caught,
    ):
        save(store, 200)
    assert "at frame 200" in str(caught.value)
    assert "at frame 100, is intact" in str(caught.value)
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert loaded_frames(tmp_path) == [100, 100, 100]


@pytest.mark.parametrize("at", [1, 2])
def test_a_rename_that_fails_leaves_the_last_checkpoint_and_nothing_else(tmp_path, at):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    before = {path.name for path in tmp_path.iterdir()}
    with (
        faults(full_disk, ["replace"], at=at),
        pytest.raises(CheckpointError, match="frame 100"),
    ):
        save(store, 200)
    copy = {f"{PREFIX}_previous.json"} if at == 2 else set()
    assert {path.name for path in tmp_path.iterdir()} == before | copy
    assert loaded_frames(tmp_path) == [100, 100, 100]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_folder_that_cannot_be_synced_leaves_a_manifest_whose_files_all_load(
    tmp_path, after
):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    with (
        faults(full_disk, ["fsync"], at=5, after=after),
        pytest.raises(CheckpointError),
    ):
        save(store, 200)
    assert loaded_frames(tmp_path) in ([100] * 3, [200] * 3)


def test_until_the_folder_is_synced_the_files_of_both_checkpoints_are_there(tmp_path):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    old = {path.name for path in tmp_path.glob("*.pt")}
    with faults(Killed, ["fsync"], at=5), pytest.raises(Killed):
        save(store, 200)
    assert old < {path.name for path in tmp_path.glob("*.pt")}
    assert loaded_frames(tmp_path) == [200, 200, 200]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_full_disk_at_the_first_checkpoint_says_that_there_is_none(tmp_path, at):
    calls = [*3 * FILE, "replace", "fsync"]
    assert len(calls) == 11
    store = CheckpointStore(tmp_path, PREFIX)
    with faults(full_disk, at=at), pytest.raises(CheckpointError) as caught:
        save(store, 100)
    if at <= calls.index("replace") + 1:
        assert "there is no checkpoint before it" in str(caught.value)
        assert list(tmp_path.iterdir()) == []
    else:
        assert loaded_frames(tmp_path) == [100, 100, 100]


@pytest.mark.parametrize("at", range(1, 15))
def test_the_next_checkpoint_succeeds_after_one_that_failed(tmp_path, at):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    with faults(full_disk, at=at), pytest.raises(CheckpointError):
        save(store, 200)
    save(store, 300)
    assert loaded_frames(tmp_path) == [300, 300, 300]
    assert len(list(tmp_path.iterdir())) == 3 + 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 16))
def test_a_kill_at_any_call_leaves_a_whole_checkpoint(tmp_path, calls, at, after):
    save(CheckpointStore(tmp_path, PREFIX), 100)
    with faults(Killed, at=at, after=after), pytest.raises(Killed):
        save(CheckpointStore(tmp_path, PREFIX), 200)
    last_rename = len(calls) - 2
    assert calls[last_rename] == "replace"
    renamed = at > last_rename + (0 if after else 1)
    assert loaded_frames(tmp_path) == [200 if renamed else 100] * 3


@pytest.mark.parametrize("at", range(1, 16))
def test_leftovers_of_a_kill_are_removed_by_the_next_checkpoint(tmp_path, at):
    save(CheckpointStore(tmp_path, PREFIX), 100)
    other = CheckpointStore(tmp_path, f"{PREFIX}0")
    other.save(5, {}, {"state": state(5)})
    copied = tmp_path / f"{PREFIX}_nonfinite_150.pt"
    other.save_copy(copied, state(150))
    with faults(Killed, at=at), pytest.raises(Killed):
        save(CheckpointStore(tmp_path, PREFIX), 200)
    save(CheckpointStore(tmp_path, PREFIX), 250)
    assert loaded_frames(tmp_path) == [250, 250, 250]
    assert other.load(other.manifest())["frame"] == 5
    assert copied.exists()
    assert len(list(tmp_path.iterdir())) == 3 + 3 + 2 + 1


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_state_aside_that_meets_a_full_disk_is_an_error_and_leaves_no_file(
    tmp_path, at
):
    store = CheckpointStore(tmp_path, PREFIX)
    save(store, 100)
    path = tmp_path / f"{PREFIX}_nonfinite_150.pt"
    with (
        faults(full_disk, at=at),
        pytest.raises(CheckpointError, match="nonfinite_150"),
    ):
        store.save_copy(path, state(150))
    assert not path.exists()
    assert loaded_frames(tmp_path) == [100, 100, 100]


def test_a_failed_write_keeps_no_view_of_the_state(tmp_path, monkeypatch):
    """Python 3.12.1 crashes when it collects such a view in a cycle; 3.13 complains."""
    views = []

    def write(path, content):
        views.append(content)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(checkpoint, "_write_durably", write)
    with pytest.raises(OSError, match="full"):
        checkpoint.write_state(tmp_path / "state.pt", state(1))
    with pytest.raises(ValueError, match="released"):
        views[0].tobytes()
