"""A /dev/shm that is too small for what processes are to share."""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.lab import call, command, write_spec
from tests.support import actor_critic, ppo, soft

TOGETHER = {
    "shared": partial(soft, "SoftActorCritic"),
    "synced": actor_critic,
    "all_reduce": ppo,
    "actor_learner": ppo,
}
"""What is trained in each way of training together."""


@pytest.fixture
def folder():
    """Not in /dev/shm, where other temporary folders are: the command has another."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.parametrize("mode", TOGETHER)
def test_full_shared_memory_is_one_clear_line_and_leaves_nothing_there(mode, folder):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can give a command a small /dev/shm of its own")
    write_spec(folder, TOGETHER[mode](meta__distributed=mode, meta__max_session=2))
    script = (
        'mount -t tmpfs -o size=4k tmpfs /dev/shm || exit 77; "$@"; code=$?; ls '
        "/dev/shm; "
    )
    args = [
        "unshare",
        "-m",
        "sh",
        "-c",
        f"{script} exit $code",
        "sh",
        *command(folder, "train"),
    ]
    began = time.monotonic()
    done = call(args, folder)
    if done.code == 77:
        pytest.skip(f"cannot mount a small /dev/shm: {done.err}")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "/dev/shm" in done.err
    assert "make room there" in done.err
    assert "torch_" not in done.out
    assert time.monotonic() - began < 60
