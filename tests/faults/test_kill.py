"""kill -9 at any moment: checkpoints are whole, and the run resumes without a
difference."""

import random
import shutil
import signal
import subprocess

import pytest

from slm_lab.storage.checkpoint import read_state
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    manifest,
    repeatable,
    rows_file,
    run,
    started,
    wait_until,
    write_spec,
)
from tests.support import ppo

KILLS = 10
STARTUP = 2.0
"""Seconds: some kills are that early, before any training."""
TRAINING = 0.4
"""Seconds: the others follow that soon after the first new row."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The rows of the same run, never killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_spec(folder, long_spec(save_interval=10))
    run(folder, "train")
    return repeatable(rows_file(folder))


def long_spec(save_interval):
    return ppo(env__max_frame=20_000, meta__save_interval=save_interval)


@pytest.mark.slow
@pytest.mark.parametrize("save_interval", [0, 0.2])
def test_a_run_killed_ten_times_has_the_rows_of_an_uninterrupted_run(
    save_interval, folder, uninterrupted
):
    write_spec(folder, long_spec(save_interval))
    rng = random.Random(save_interval)
    for _ in range(KILLS):
        with started(folder, mode(folder)) as running:
            if rng.random() < 0.7:
                before = written(folder)
                wait_until(
                    lambda before=before: (
                        written(folder) != before or running.process.poll() is not None
                    )
                )
                live_at_most(running.process, rng.uniform(0, TRAINING))
            else:
                live_at_most(running.process, rng.uniform(0, STARTUP))
            if running.process.poll() is None:
                running.signal_group(signal.SIGKILL)
            assert running.end().code in (-signal.SIGKILL, 0)
        assert_whole(folder)
    run(folder, mode(folder))
    assert read_manifest(manifest(folder)).finished
    assert repeatable(rows_file(folder)) == uninterrupted


def mode(folder):
    """A run that was killed before its spec was saved cannot be resumed. Another one
    takes its place."""
    if list(folder.glob("data/*/*_spec.json")):
        return "train@latest"
    shutil.rmtree(folder / "data", ignore_errors=True)
    return "train"


def written(folder):
    """Bytes of rows."""
    return [
        path.stat().st_size
        for path in folder.glob("data/*/info/*_session_df_train.csv")
    ]


def live_at_most(process, seconds):
    """The random moment of a kill; nothing is waited for but the end of the process
    itself."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def assert_whole(folder):
    """Every manifest can be read, and so can all it names."""
    for path in folder.glob("data/*/model/*_latest.json"):
        for file in read_manifest(path).files.values():
            assert read_state(path.parent, file)
