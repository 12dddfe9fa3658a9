"""Synchronous ranks, which take fewer and larger steps, need few frames more."""

from datetime import datetime
from statistics import median

import numpy as np
import pytest

from slm_lab.charts.speeds import training_of
from slm_lab.metrics.reader import read_rows
from slm_lab.spec.load import load_spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask

SPECS = {
    # the return that both are to reach, frames in which they do, and those that it is
    # the mean of
    "dppo_cartpole": (475.0, 140_000, 4_000),
    "dsac_pendulum": (-180.0, 10_000, 2_500),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """{spec: median frames that one process needs}."""
    folder = tmp_path_factory.mktemp("alone")
    settings = ("meta.distributed=false", "meta.max_session=4")
    return {name: median(frames_to(name, folder, settings)) for name in SPECS}


def frames_to(name, folder, settings):
    """Total frames until the mean return of each of four trainings reaches the
    threshold."""
    threshold, frames, window = SPECS[name]
    spec = load_spec(f"{name}.json", name, [f"env.max_frame={frames}", *settings])
    run_dir = RunDir.create(folder, name, datetime(2026, 1, 1))
    assert not Trial(TrialTask(spec, run_dir, 0)).run().failed
    needed = []
    for session in spec.meta.writers:
        training = training_of([read_rows(run_dir.session(0, session).rows)], window)
        at = training.reached(threshold)
        needed.append(np.inf if at is None else training.total_frame[at])
    assert len(needed) == 4
    return needed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("dppo_cartpole", 2), ("dppo_cartpole", 4), ("dsac_pendulum", 2)],
)
def test_the_frames_needed_grow_by_at_most_half(name, ranks, alone, tmp_path):
    settings = (f"meta.max_session={ranks}", "meta.max_run=4")
    together = frames_to(name, tmp_path, settings)
    assert median(together) <= 1.5 * alone[name], (together, alone[name])
