"""A disk that does not answer: processes that use it cannot even be killed."""

import shutil
import subprocess

import psutil
import pytest

from tests.faults.lab import (
    all_gone,
    interrupt,
    mounted_disk,
    row_count,
    run,
    started,
    wait_until,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(folder):
    """The folder of data on a disk of its own, which `fsfreeze` can stop."""
    if not all(map(shutil.which, ("mkfs.ext4", "fsfreeze"))):
        pytest.skip("a disk that can be frozen needs mkfs.ext4 and fsfreeze")
    image = folder / "image"
    data = folder / "data"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted_disk(data, "-o", "loop", str(image)):
        yield data


def test_a_stop_says_that_it_waits_for_the_disk_and_a_second_one_does_not_wait(
    folder, disk
):
    write_spec(folder, ppo(env__max_frame=10_000_000))
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 2)
        session = running.session(0)
        left = running.children()
        subprocess.run(["fsfreeze", "-f", str(disk)], check=True)
        try:
            wait_until(lambda: session.status() == psutil.STATUS_DISK_SLEEP)
            interrupt(running)
            waits = "waiting for the disk of Session 0; Ctrl-C again ends at once"
            wait_until(lambda: waits in (folder / "out").read_text())
            interrupt(running)
            done = running.end()
            assert session.is_running()
        finally:
            subprocess.run(["fsfreeze", "-u", str(disk)], check=True)
        wait_until(lambda: all_gone(left))
    assert done.outcome == (130, "stopped\n")
    assert "resume with: slm-lab run train@" in done.out
    run(folder, "train@latest", "-s", "env.max_frame=8000")
