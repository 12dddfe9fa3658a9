"""Same seed, same rows; a resumed run is the uninterrupted one, bit for bit."""

import pytest

from tests.contract.runs import assert_same_run, poison_global_generators, stop_at
from tests.contract.table import ALGORITHM_ROWS, training_cases
from tests.support import run_session


@pytest.mark.parametrize("case", training_cases())
def test_a_resumed_run_equals_the_uninterrupted_one_whatever_the_global_generators_do(
    case, whole_runs, tmp_path
):
    """Stopped after two rows, in the middle of a rollout and of episodes."""
    name, variant = case
    spec = ALGORITHM_ROWS[name][variant].spec
    whole = whole_runs.get(name, variant)
    assert not whole.drew_from_global_generators
    assert len(whole.rows) == 4
    poison_global_generators(1)
    stopped = run_session(spec, tmp_path, on_row=stop_at(200))
    assert 200 <= stopped.clock.frame < 300
    assert stopped.env.exact_state
    poison_global_generators(2)
    assert_same_run(run_session(spec, tmp_path, resume=True), whole)
