"""Arrays in mapped files, and frames on the device of the networks."""

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.agent.memory.observation_ring import (
    DeviceRows,
    allocate_in_memory,
    mapped_in,
)
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.memory import PrioritizedReplaySpec, ReplaySpec
from slm_lab.testing.play import same, whole
from tests.unit.agent.stream import fill, layout

UINT8 = np.dtype(np.uint8)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (5, 3, 2)])
@pytest.mark.parametrize("dtype", ["u1", "f4", "i8", "?"])
def test_a_mapped_array_is_an_array_of_zeros_that_can_be_written(
    tmp_path, shape, dtype
):
    array = mapped_in(tmp_path)(shape, np.dtype(dtype))
    assert_array_equal(array, np.zeros(shape, dtype), strict=True)
    array[...] = 1
    assert_array_equal(array, np.ones(shape, dtype), strict=True)


@pytest.mark.parametrize("count", [10**13, 2**62, 10**19])
def test_a_memory_that_is_too_large_is_one_clear_error(count):
    with pytest.raises(LabError, match=r"agent\.memory\.max_size: .* MB; lower it"):
        allocate_in_memory((count, 4), np.dtype(np.float64))


def test_the_disk_space_is_taken_at_once(tmp_path, monkeypatch):
    """Otherwise a disk that fills up later kills the process without a message."""
    fallocate = os.posix_fallocate
    taken = []

    def observed(descriptor, offset, size):
        fallocate(descriptor, offset, size)
        taken.append(os.fstat(descriptor).st_blocks * 512)

    monkeypatch.setattr(os, "posix_fallocate", observed)
    array = mapped_in(tmp_path)((1 << 20, 3), UINT8)
    assert taken[0] >= array.nbytes == 3 << 20


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LabError) as caught:
        mapped_in(tmp_path)((3_000_000,), UINT8)
    for part in (
        "agent.memory.storage",
        "3.0 MB",
        str(tmp_path),
        "No space left",
        "max_size",
    ):
        assert part in str(caught.value)


@pytest.fixture
def no_fallocate(monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "posix_fallocate")


@pytest.mark.usefixtures("no_fallocate")
@pytest.mark.parametrize("shape", [(), (0,), (7,), (1 << 10, 3, 2)])
def test_without_a_call_that_takes_disk_space_it_is_the_same_array(tmp_path, shape):
    array = mapped_in(tmp_path)(shape, np.dtype("f4"))
    assert_array_equal(array, np.zeros(shape, "f4"), strict=True)
    array[...] = 1
    assert_array_equal(array, np.ones(shape, "f4"), strict=True)


def test_a_memory_without_a_folder_says_so():
    with pytest.raises(
        LabError, match=r'agent.memory.storage = "memmap": needs a folder'
    ):
        build_memory(ReplaySpec(batch_size=4, max_size=30, storage="memmap"), layout())


@pytest.mark.parametrize("model", [ReplaySpec, PrioritizedReplaySpec])
@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("storage", ["memmap", "device"])
def test_a_memory_elsewhere_draws_what_one_in_memory_draws(
    tmp_path, model, stack, storage
):
    def memory(storage):
        spec = model(batch_size=16, max_size=60, storage=storage)
        return build_memory(spec, layout(num_steps=3, stack=stack, scratch=tmp_path))

    ours = memory("memory")
    theirs = memory(storage)
    for memory in (ours, theirs):
        fill(memory.add, 0, 47, stack)
    for frame in range(5):
        one = ours.sample(frame)
        other = theirs.sample(frame)
        assert same(vars(one), vars(other))
        for memory in (ours, theirs):
            memory.update_priorities(one.index, one.reward)
    assert same(whole(ours), whole(theirs))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize(
    ("saved", "loaded"), [("memory", "device"), ("device", "memory")]
)
def test_a_memory_continues_with_frames_that_were_stored_elsewhere(
    stack, saved, loaded
):
    def memory(storage):
        spec = ReplaySpec(batch_size=16, max_size=60, storage=storage)
        return build_memory(spec, layout(stack=stack))

    first = memory(saved)
    second = memory(loaded)
    fill(first.add, 0, 47, stack)
    second.load_state_dict(first.state_dict())
    second.log.load_content(first.log.content(first.log.first, first.log.count))
    assert same(whole(first), whole(second))
    for each in (first, second):
        fill(each.add, 47, 20, stack)
    assert same(vars(first.sample(0)), vars(second.sample(0)))


def test_a_device_without_memory_is_one_clear_error():
    with pytest.raises(
        LabError, match=r'"device": cpu has no memory for .* MB; lower agent'
    ):
        DeviceRows((10**13, 4), np.dtype(np.float64), torch.device("cpu"))


@pytest.mark.medium
def test_a_process_that_is_killed_leaves_nothing_behind(tmp_path):
    code = (
        "import numpy, os, pathlib, signal, sys\n"
        "from slm_lab.agent.memory.observation_ring import mapped_in\n"
        "array = mapped_in(pathlib.Path(sys.argv[1]))((1 << 20,), numpy.dtype('u1'))\n"
        "array[:] = 1\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
