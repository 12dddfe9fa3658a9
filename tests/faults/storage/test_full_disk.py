"""A disk that fills up during a run."""

import contextlib
import os
import shutil
import subprocess

import pytest

from slm_lab.storage.checkpoint import read_state
from slm_lab.storage.manifest import read_manifest
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
from tests.support import ppo

SPEC = ppo(env__max_frame=20_000)


def fill(path):
    """Leaves nothing free on the disk of `path`, whatever the training deletes
    meanwhile."""
    with path.open("wb", buffering=0) as stream:
        while shutil.disk_usage(path.parent).free:
            with contextlib.suppress(OSError):
                stream.write(bytes(4096))


@pytest.mark.slow
def test_a_full_disk_is_reported_and_training_continues_when_there_is_room(
    small_disk, folder, tmp_path
):
    whole = tmp_path / "whole"
    write_spec(whole, SPEC)
    run(whole, "train")

    write_spec(folder, SPEC)
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 5)
        fill(small_disk / "ballast")
        done = running.end()
    assert done.code == 1
    assert "No space left on device" in done.err
    assert str(run_folder(folder)) in done.err
    assert "Traceback" not in done.err
    saved = read_manifest(manifest(folder))
    assert 0 < saved.frame < 20_000
    assert (
        read_state(run_folder(folder) / "model", saved.files["state"])["frame"]
        == saved.frame
    )
    assert f"the last checkpoint, at frame {saved.frame}, is intact" in done.err

    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    run(folder, "train@latest")
    assert repeatable(rows_file(folder)) == repeatable(rows_file(whole))


@pytest.mark.slow
def test_a_disk_that_is_full_from_the_start_is_one_clear_message(small_disk, folder):
    write_spec(folder, SPEC)
    fill(small_disk / "ballast")
    done = call(command(folder, "train"), folder)
    assert done.code in (1, 2)
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_full_disk_ends_a_search_and_costs_no_trial(small_disk):
    """Not even room for the pages of the first trial; the second would meet the
    same."""
    folder = small_disk.parent
    search = {"agent.net.optim_spec.lr__grid_search": [1e-3, 1e-2, 3e-3]}
    one_at_a_time = {"cpu": len(os.sched_getaffinity(0))}
    sizes = {"env__max_frame": 2000, "meta__search_resources": one_at_a_time}
    write_spec(folder, ppo(search=search, **sizes))
    done = call(command(folder, "search"), folder)
    assert done.code == 1
    assert "the search has stopped: t0: " in done.err
    assert "No space left on device" in done.err
    assert f"search@{run_folder(folder)}" in done.out
    larger = ["mount", "-o", "remount,size=60m", str(small_disk)]
    subprocess.run(larger, check=True)
    run(folder, "search@latest")
    record = (run_folder(folder) / "small_search.jsonl").read_text()
    assert record.count('"status": "finished"') == 3
    assert '"status": "failed"' not in record
