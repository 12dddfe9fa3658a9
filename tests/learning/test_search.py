"""A search finds a spec that solves what its base spec does not."""

from pathlib import Path
from statistics import median

import pytest

from slm_lab.metrics.trial_state import Status
from slm_lab.records.run_source import RunSource
from slm_lab.studies.search.run import SearchRun

SHIPPED = "experiment/ppo_cartpole_search.json"
NAME = "ppo_cartpole_search"
SOLVED = 475.0


@pytest.mark.slow
def test_from_a_bad_start_a_search_with_asha_finds_a_spec_that_solves_cartpole(
    tmp_path: Path,
):
    """Learning rate and entropy coefficient of the spec itself are far too large."""
    run = SearchRun(RunSource(SHIPPED, NAME, seed=0, data_dir=tmp_path))
    search = run.search
    asked = run.spec.meta.confirm
    assert asked is not None
    run.run(search.run, lambda confirmation: confirmation.study.run())
    best = search.study_state.ranked[0]
    assert best.status is Status.FINISHED
    assert best.score is not None
    assert best.score >= SOLVED
    stopped = search.study_state.of(Status.STOPPED)
    assert len(stopped) >= len(search.study_state.trials) / 2
    scores = search.study_state.confirmed[best.trial].scores
    assert len(scores) == asked.max_session
    assert median(scores) >= SOLVED  # a fresh seed may be unlucky
    run.close()
