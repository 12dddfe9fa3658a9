"""Same seed, same rows; a resumed run is the uninterrupted one, bit for bit."""

import pytest
import torch
from pandas.testing import assert_frame_equal

from tests.contract.runs import poison_global_generators, vectors
from tests.contract.table import ALGORITHM_ROWS, cases
from tests.support import rows, run_session


@pytest.mark.parametrize("case", cases(ALGORITHM_ROWS))
def test_the_same_seed_gives_the_same_rows_whatever_the_global_generators_do(
    case, whole_runs, tmp_path
):
    name, variant = case
    whole = whole_runs.get(name, variant)
    assert not whole.drew_from_global_generators
    poison_global_generators(1)
    again = run_session(ALGORITHM_ROWS[name][variant].spec, tmp_path)
    assert len(whole.rows) == 6
    assert_frame_equal(rows(again), whole.rows, check_exact=True)
    for part, vector in vectors(again).items():
        assert torch.equal(vector, whole.vectors[part])


@pytest.mark.parametrize("case", cases(ALGORITHM_ROWS))
def test_a_resumed_run_equals_the_uninterrupted_one(case, whole_runs, tmp_path):
    """Stopped after three rows, in the middle of a rollout and of episodes."""
    name, variant = case
    spec = ALGORITHM_ROWS[name][variant].spec
    whole = whole_runs.get(name, variant)

    def stop(session):
        if session.clock.frame >= 300:
            session.board.request_stop()

    stopped = run_session(spec, tmp_path, on_row=stop)
    assert 300 <= stopped.clock.frame < 400
    assert stopped.env.exact_state
    resumed = run_session(spec, tmp_path, resume=True)
    assert_frame_equal(rows(resumed), whole.rows, check_exact=True)
    for part, vector in vectors(resumed).items():
        assert torch.equal(vector, whole.vectors[part])
