"""Acting during learning costs few frames: older samples are nearly as good."""

from datetime import datetime
from statistics import median

import numpy as np
import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.spec.load import load_spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask

TWINS = {
    "async_ppo_cartpole": ("ppo_cartpole", 475.0),
    "impala_cartpole": ("a2c_gae_cartpole", 450.0),
}
"""Each with its synchronous twin, and the return that both are to reach."""


def frames_to(name, threshold, folder):
    """Total frames until the mean return of each of four trainings reaches the
    threshold."""
    spec = load_spec(f"{name}.json", name)
    run_dir = RunDir.create(folder, name, datetime(2026, 1, 1))
    result = Trial(TrialTask(spec, run_dir, 0)).run()
    assert not result.failed
    frames = []
    for session in spec.meta.writers:
        rows = read_rows(run_dir.session(0, session).rows)
        reached = rows["total_frame"][rows["total_reward"] >= threshold]
        frames.append(float(reached[0]) if len(reached) else np.inf)
    assert len(frames) == 4
    return frames


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_the_frames_needed_grow_by_at_most_half(name, tmp_path):
    twin, threshold = TWINS[name]
    alone = frames_to(twin, threshold, tmp_path / "alone")
    together = frames_to(name, threshold, tmp_path / "together")
    assert median(together) <= 1.5 * median(alone), (together, alone)
