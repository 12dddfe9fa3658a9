"""Same seed, same rows; a resumed run is the uninterrupted one, bit for bit."""

import pytest

from tests.contract.runs import assert_same_run, poison_global_generators, stop_at
from tests.contract.table import ALGORITHM_ROWS, cases
from tests.support import run_session


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
    assert_same_run(again, whole)


@pytest.mark.parametrize("case", cases(ALGORITHM_ROWS))
def test_a_resumed_run_equals_the_uninterrupted_one(case, whole_runs, tmp_path):
    """Stopped after three rows, in the middle of a rollout and of episodes."""
    name, variant = case
    spec = ALGORITHM_ROWS[name][variant].spec
    whole = whole_runs.get(name, variant)
    stopped = run_session(spec, tmp_path, on_row=stop_at(300))
    assert 300 <= stopped.clock.frame < 400
    assert stopped.env.exact_state
    assert_same_run(run_session(spec, tmp_path, resume=True), whole)
