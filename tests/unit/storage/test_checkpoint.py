import hashlib
import json
import os

import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError
from slm_lab.metrics.writer import Extent
from slm_lab.storage.checkpoint import CheckpointStore, read_state
from slm_lab.storage.manifest import (
    FORMAT,
    SavedFile,
    manifest_path,
    previous_path,
    read_manifest,
)

PREFIX = "ppo_t0_s0"


def state(frame):
    return {
        "frame": frame,
        "weights": np.full((2, 3), frame, np.float32),
        "rng": 2**127 + frame,
    }


def assert_loads(store, frame, part="state"):
    manifest = store.manifest()
    loaded = store.load(manifest, part)
    assert loaded["frame"] == frame
    assert loaded["rng"] == 2**127 + frame
    np.testing.assert_array_equal(loaded["weights"], state(frame)["weights"])


def names(folder):
    return {path.name for path in folder.iterdir()}


def named(store):
    manifest = store.manifest()
    return {f"{PREFIX}_latest.json"} | {file.name for file in manifest.files.values()}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path, PREFIX)


def test_where_nothing_was_saved_there_is_no_manifest(store):
    assert store.manifest() is None


def test_a_checkpoint_comes_back_as_it_was_saved(store, tmp_path):
    rows = {"rows.csv": Extent.of(b"frame\n")}
    store.save(100, rows, {"state": state(100), "best": state(60)}, finished=True)
    manifest = CheckpointStore(tmp_path, PREFIX).manifest()
    assert (manifest.frame, manifest.rows, manifest.finished) == (100, rows, True)
    assert_loads(store, 100)
    assert_loads(store, 60, "best")


def test_the_manifest_tells_size_and_checksum_of_every_file(store, tmp_path):
    store.save(100, {}, {"state": state(100), "best": state(60)})
    for file in store.manifest().files.values():
        content = (tmp_path / file.name).read_bytes()
        assert file.bytes == len(content)
        assert file.sha256 == hashlib.sha256(content).hexdigest()


def test_a_part_that_is_not_given_keeps_its_file(store, tmp_path):
    store.save(100, {}, {"state": state(100), "best": state(60)})
    best = store.manifest().files["best"]
    store.save(200, {}, {"state": state(200)})
    assert store.manifest().files["best"] == best
    assert_loads(store, 200)
    assert_loads(store, 60, "best")


def test_the_newest_two_checkpoints_remain_in_the_folder(store, tmp_path):
    before = set()
    for frame in (100, 200, 200, 300):
        store.save(frame, {}, {"state": state(frame), "best": state(frame)})
        previous = before and {f"{PREFIX}_previous.json"} | before - {
            f"{PREFIX}_latest.json"
        }
        assert names(tmp_path) == named(store) | previous
        assert_loads(store, frame)
        before = named(store)
    assert len(names(tmp_path)) == 3 + 3


def test_the_checkpoint_before_the_newest_can_be_read(store, tmp_path):
    for frame in (100, 200, 300):
        store.save(frame, {}, {"state": state(frame)})
    before = read_manifest(previous_path(manifest_path(tmp_path, PREFIX)))
    assert before.frame == 200
    assert store.load(before)["frame"] == 200


def test_no_file_name_is_used_for_two_contents(store):
    seen = set()
    for frame in (100, 100, 50, 100):
        store.save(frame, {}, {"state": state(frame)})
        seen.add(store.manifest().files["state"].name)
    assert len(seen) == 4


def test_two_sessions_in_one_folder_leave_each_other_alone(tmp_path):
    stores = {
        session: CheckpointStore(tmp_path, f"ppo_t0_s{session}") for session in (1, 10)
    }
    for frame in (100, 200):
        for session, store in stores.items():
            store.save(frame + session, {}, {"state": state(frame + session)})
    for session, store in stores.items():
        assert_loads(store, 200 + session)
    assert len(names(tmp_path)) == 8


def test_a_state_that_cannot_be_saved_leaves_the_checkpoint_before_alone(
    store, tmp_path
):
    store.save(100, {}, {"state": state(100)})
    before = names(tmp_path)
    with pytest.raises((TypeError, CheckpointError)):
        store.save(200, {}, {"state": state(200), "best": {"object": object()}})
    assert_loads(store, 100)
    assert names(tmp_path) == before


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 1.0])
def test_a_flipped_bit_in_a_state_file_is_detected_and_the_file_reported(
    store, tmp_path, place
):
    store.save(100, {}, {"state": state(100)})
    path = tmp_path / store.manifest().files["state"].name
    content = bytearray(path.read_bytes())
    content[round(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged") as caught:
        store.load(store.manifest())
    assert str(path) in str(caught.value)


def test_a_missing_state_file_is_reported(store, tmp_path):
    store.save(100, {}, {"state": state(100)})
    path = tmp_path / store.manifest().files["state"].name
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read") as caught:
        store.load(store.manifest())
    assert str(path) in str(caught.value)


def changed(**fields):
    good = {
        "format": FORMAT,
        "frame": 1,
        "serial": 1,
        "rows": {},
        "finished": False,
        "segments": [],
    }
    return json.dumps({**good, "files": {}, **fields}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"{}",
        b'"text"',
        changed()[:-5],
        changed(format=FORMAT + 1),
        changed(format=None),
        changed(surplus=1),
        changed(frame=-1),
        changed(serial=10**30),
        changed(rows={"a.csv": None}),
        changed(segments=[{}]),
        changed(files=[]),
        json.dumps({"format": FORMAT, "frame": 1}).encode(),
    ],
    ids=repr,
)
def test_a_broken_or_foreign_manifest_is_reported_and_not_overwritten(
    store, tmp_path, content
):
    path = manifest_path(tmp_path, PREFIX)
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        store.manifest()
    assert str(path) in str(caught.value)
    with pytest.raises(CheckpointError):
        store.save(100, {}, {"state": state(100)})
    assert path.read_bytes() == content
    assert names(tmp_path) == {path.name}


def test_a_manifest_of_a_hundred_thousand_lists_is_a_checkpoint_error(store, tmp_path):
    manifest_path(tmp_path, PREFIX).write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="cannot read"):
        store.manifest()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(store, tmp_path):
    store.save(100, {}, {"state": state(100)})
    manifest = store.manifest()
    for path in (store.file(manifest), manifest_path(tmp_path, PREFIX)):
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(CheckpointError, match="it is not a file"):
        store.load(manifest)
    with pytest.raises(CheckpointError, match="it is not a file"):
        store.manifest()


@pytest.mark.parametrize(
    "files", [{}, {"state": {"name": "a.pt"}}, {"state": 3}, [], None]
)
def test_a_manifest_that_lacks_the_state_is_a_checkpoint_error(store, tmp_path, files):
    path = manifest_path(tmp_path, PREFIX)
    path.write_bytes(changed(files=files))
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(CheckpointError):
        store.load(store.manifest())


def test_a_state_written_aside_is_no_checkpoint_and_can_be_read(store, tmp_path):
    store.save(100, {}, {"state": state(100)})
    before = store.manifest()
    path = tmp_path / f"{PREFIX}_nonfinite_150.pt"
    store.save_copy(path, state(150))
    assert store.manifest() == before
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    copied = read_state(tmp_path, SavedFile(path.name, 0, checksum))
    assert copied["frame"] == 150
    store.save(200, {}, {"state": state(200)})
    assert path.exists()


def test_a_state_that_cannot_be_written_aside_is_a_checkpoint_error_that_names_it(
    store, tmp_path
):
    path = tmp_path / "missing" / "aside.pt"
    with pytest.raises(CheckpointError, match=r"cannot write .*aside\.pt"):
        store.save_copy(path, state(1))
