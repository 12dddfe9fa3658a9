"""The steps of a memory in files: what is written, what is kept, and what is read
back."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.agent.memory.memory import AppendLog
from slm_lab.core.errors import CheckpointError
from slm_lab.storage.checkpoint import SHARE, SHORT, CheckpointStore, plan_segments
from slm_lab.storage.manifest import Segment, previous_path, read_manifest
from tests.unit.storage.disk import Killed, faults, full_disk

PREFIX = "dqn_t0_s0"


class Numbers(AppendLog):
    """Its steps are numbers."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.count = 0
        self.steps = {}

    def add(self, how_many):
        for number in range(self.count, self.count + how_many):
            self.steps[number] = number * 7 + 1
        self.count += how_many
        self.steps = {n: value for n, value in self.steps.items() if n >= self.first}

    def content(self, first, end):
        return {
            "first": first,
            "values": np.array([self.steps[n] for n in range(first, end)]),
        }

    def load_content(self, content):
        for n, value in enumerate(content["values"].tolist(), content["first"]):
            if n >= self.first:
                self.steps[n] = value


def save(store, log):
    store.save(log.count, {}, {"state": {"count": log.count}}, log=log)


def read_back(folder, capacity):
    """The log as a fresh process reads it."""
    store = CheckpointStore(folder, PREFIX)
    log = Numbers(capacity)
    manifest = store.manifest()
    log.count = store.load(manifest)["count"]
    store.load_log(manifest, log)
    return log


def previous(folder):
    """The manifest of the checkpoint before the newest; of a first one itself."""
    newest = folder / f"{PREFIX}_latest.json"
    return read_manifest(previous_path(newest)) or read_manifest(newest)


def segment_files(folder):
    return {path.name: path for path in folder.glob("*_steps_*.pt")}


@given(
    capacity=st.integers(1, 200) | st.integers(1000, 20_000),
    news=st.lists(st.integers(0, 3000) | st.integers(0, 90), min_size=1, max_size=60),
)
@settings(max_examples=100)
def test_whatever_was_added_between_the_saves_all_that_is_kept_lies_in_a_file(
    capacity, news
):
    """And only the newest step of a file may lie in the next one too."""
    log = Numbers(capacity)
    segments = []
    for new in news:
        log.count += new
        kept, written = plan_segments(segments, log)
        segments = kept + [Segment("", 0, "", w.start, w.stop) for w in written]
        numbers = [n for s in segments for n in range(s.first, s.end)]
        assert set(numbers) >= set(range(log.first, log.count))
        assert all(s.end > log.first for s in segments)
        for before, after in itertools.pairwise(segments):
            assert before.end - 1 <= after.first <= before.end
        assert not log.count or log.count - 1 in {n for w in written for n in w}


@pytest.mark.parametrize("new", [1, 10, 100, 700, 5000])
def test_files_stay_few_and_what_is_written_is_bounded_by_what_is_new(new):
    capacity = 20_000
    segments = []
    written_in_all = 0
    log = Numbers(capacity)
    saves = 3 * capacity // new
    for _ in range(saves):
        log.count += new
        kept, written = plan_segments(segments, log)
        steps = sum(map(len, written))
        assert steps <= new + 1 + max(capacity // SHARE, SHORT)
        written_in_all += steps
        segments = kept + [Segment("", 0, "", w.start, w.stop) for w in written]
        assert len(segments) <= 2 * SHARE + 12
        assert segments[-1].end - segments[0].first <= capacity * (1 + 2 / SHARE) + new
    # A step is rewritten only when its file grows by half.
    often = 2 + np.log(max(capacity / SHARE / new, 1)) / np.log(1.5)
    assert written_in_all / (saves * new) < often


def test_the_newest_step_is_as_it_was_when_it_was_saved_last(tmp_path):
    """Its episodes may be broken off after it was saved."""
    store = CheckpointStore(tmp_path, PREFIX)
    log = Numbers(1000)
    for _ in range(8):
        log.add(90)
        save(store, log)
        log.steps[log.count - 1] = -1
    save(store, log)
    assert read_back(tmp_path, 1000).steps == log.steps


def two_saves(folder):
    """A store with a checkpoint, and a log with more to save; 2 files are written for
    it."""
    store = CheckpointStore(folder, PREFIX)
    log = Numbers(8 * SHORT)
    log.add(8 * SHORT)
    save(store, log)
    log.add(SHORT + 50)
    return store, log


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counted")
    store, log = two_saves(folder)
    with faults(full_disk) as counted:
        save(store, log)
    return counted.calls


def test_every_segment_is_synced_before_the_rename(calls):
    file = ["open", "write", "fsync"]
    assert calls == [*file * 5, "replace", "replace", "fsync"]


@pytest.mark.parametrize("error", [full_disk, Killed])
@pytest.mark.parametrize("at", range(1, 17))
def test_whatever_fails_before_the_rename_the_last_checkpoint_is_whole(
    tmp_path, calls, at, error
):
    store, log = two_saves(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with faults(error, at=at), pytest.raises((CheckpointError, Killed)) as caught:
        save(store, log)
    assert "replace" not in calls[: at - 1]
    if error is full_disk:
        assert f"at frame {8 * SHORT}, is intact" in str(caught.value)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert read_back(tmp_path, log.capacity).count == 8 * SHORT
    # The next one succeeds, and clears up.
    log.add(5)
    save(store, log)
    assert read_back(tmp_path, log.capacity).steps == log.steps
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{PREFIX}_latest.json",
        f"{PREFIX}_previous.json",
        *store.manifest().names,
        *previous(tmp_path).names,
    }


def test_superseded_segments_are_there_until_the_next_manifest_is_durable(tmp_path):
    store, log = two_saves(tmp_path)
    old = set(segment_files(tmp_path))
    with faults(Killed, ["fsync"], at=6), pytest.raises(Killed):
        save(store, log)
    assert old < set(segment_files(tmp_path))
    assert read_back(tmp_path, log.capacity).steps == log.steps
    save(CheckpointStore(tmp_path, PREFIX), log)
    assert not old <= set(segment_files(tmp_path))  # what was written over since


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_damaged_or_missing_segment_is_reported_by_its_name(tmp_path, which):
    store, log = two_saves(tmp_path)
    save(store, log)
    path = tmp_path / store.manifest().segments[which].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged") as caught:
        read_back(tmp_path, log.capacity)
    assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read") as caught:
        read_back(tmp_path, log.capacity)
    assert str(path) in str(caught.value)
    # the state alone can be read
    assert store.load(store.manifest())["count"] == log.count


@pytest.mark.parametrize("which", [0, 3, -1])
def test_steps_that_no_file_has_are_reported(tmp_path, which):
    store, log = two_saves(tmp_path)
    save(store, log)
    manifest = store.manifest()
    less = list(manifest.segments)
    del less[which]
    object.__setattr__(manifest, "segments", tuple(less))
    with pytest.raises(CheckpointError, match="holds the memory's steps"):
        store.load_log(manifest, log)
