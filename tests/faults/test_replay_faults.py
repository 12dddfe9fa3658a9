"""kill -9 and a full disk under a run that learns from replay."""

import random
import signal
import subprocess
from contextlib import suppress

import pytest

from slm_lab.storage.checkpoint import read_state
from slm_lab.storage.manifest import previous_path, read_manifest
from tests.faults.lab import (
    call,
    command,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run,
    run_folder,
    started,
    wait_until,
    write_spec,
)
from tests.support import q_learning

KILLS = 6
TRAINING = 0.3
"""Seconds: how soon after a new row a kill comes."""


def spec(save_interval=0, max_size=3000, **memory):
    return q_learning(
        "DoubleDQN",
        agent__memory={
            "name": "PrioritizedReplay",
            "batch_size": 16,
            "max_size": max_size,
            **memory,
        },
        env__num_envs=2,
        env__max_frame=20_000,
        meta__save_interval=save_interval,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The rows of the same run, never killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_spec(folder, spec(save_interval=60))
    run(folder, "train")
    return repeatable(rows_file(folder))


def assert_whole(folder):
    """The manifest can be read, and so can all it names."""
    found = read_manifest(manifest(folder))
    models = run_folder(folder) / "model"
    for file in [*found.files.values(), *found.segments]:
        assert read_state(models, file)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["memory", "memmap"])
def test_a_run_killed_repeatedly_has_the_rows_of_an_uninterrupted_run(
    storage, folder, uninterrupted
):
    write_spec(folder, spec(storage=storage))
    rng = random.Random(storage)
    mode = "train"
    for _ in range(KILLS):
        before = row_count(folder)
        with started(folder, mode) as running:
            wait_until(
                lambda before=before: (
                    row_count(folder) > before + 3 or running.process.poll() is not None
                )
            )
            try:
                running.process.wait(rng.uniform(0, TRAINING))
            except subprocess.TimeoutExpired:
                running.signal_group(signal.SIGKILL)
            assert running.end().code in (-signal.SIGKILL, 0)
        assert assert_whole(folder).segments
        mode = "train@latest"
    run(folder, mode)
    found = assert_whole(folder)
    assert found.finished
    before = previous_path(manifest(folder))
    left = {path.name for path in before.parent.iterdir()}
    kept = {*found.names, *read_manifest(before).names}
    assert left == {manifest(folder).name, before.name, *kept}
    assert repeatable(rows_file(folder)) == uninterrupted


@pytest.mark.slow
def test_steps_that_find_no_room_cost_no_checkpoint(small_disk, folder, uninterrupted):
    write_spec(folder, spec())
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 10)
        with (
            (small_disk / "ballast").open("wb", buffering=0) as stream,
            suppress(OSError),
        ):
            while True:
                stream.write(bytes(4096))
        done = running.end()
    assert done.code == 1
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    found = assert_whole(folder)
    assert f"the last checkpoint, at frame {found.frame}, is intact" in done.err
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    run(folder, "train@latest")
    assert repeatable(rows_file(folder)) == uninterrupted


@pytest.mark.slow
def test_a_mapped_memory_that_finds_no_room_is_reported_before_anything_is_trained(
    small_disk, folder
):
    write_spec(folder, spec(storage="memmap", max_size=1_000_000))
    done = call(command(folder, "train"), folder)
    assert done.code == 1
    assert 'agent.memory.storage = "memmap": cannot keep 16.0 MB in' in done.err
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    assert row_count(folder) <= 0
