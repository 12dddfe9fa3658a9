"""Every algorithm trains under Hogwild! without a line of its own."""

import pytest
import torch
from pandas.testing import assert_frame_equal

from slm_lab.parallel.hogwild import strategy as hogwild
from slm_lab.parallel.hogwild.strategy import HogwildStrategy
from tests.contract.runs import vectors
from tests.contract.table import ALGORITHM_ROWS, Row, cases
from tests.support import rows, run_session

EVERY = pytest.mark.parametrize("case", cases(ALGORITHM_ROWS))
BOTH = pytest.mark.parametrize("mode", ["shared", "synced"])


@pytest.fixture
def spec(case):
    """The spec of a row, with an optimizer whose state can be shared."""
    data = ALGORITHM_ROWS[case[0]][case[1]].data
    net = data["agent"].get("net")
    if net is None or net["optim_spec"]["name"].startswith("Global"):
        return Row(data).spec
    optim_spec = {"name": "GlobalAdam", "lr": 1e-3}
    return Row({**data, "agent": {**data["agent"], "net": {**net, "optim_spec": optim_spec}}}).spec


@pytest.fixture
def whole(case, spec, whole_runs, tmp_path):
    """The rows and weights of the run of `spec` without a crew."""
    if spec == ALGORITHM_ROWS[case[0]][case[1]].spec:
        run = whole_runs.get(*case)
        return run.rows, run.vectors
    session = run_session(spec, tmp_path / "whole")
    return rows(session), vectors(session)


def check_is(whole, session):
    """Rows, less the columns that only a crew has, and weights, to the last bit."""
    expected, expected_vectors = whole
    own = rows(session).drop(columns=list(HogwildStrategy.columns))
    assert_frame_equal(own, expected, check_exact=True)
    for part, vector in vectors(session).items():
        assert torch.equal(vector, expected_vectors[part])


@BOTH
@EVERY
def test_one_worker_trains_as_if_there_were_no_crew(spec, whole, mode, tmp_path):
    check_is(whole, run_session(spec, tmp_path, hogwild=mode))


ONE_EACH = pytest.mark.parametrize(
    "case", [(name, next(iter(rows))) for name, rows in ALGORITHM_ROWS.items()]
)


@ONE_EACH
def test_a_replica_that_is_refreshed_is_the_global_network(spec, whole, tmp_path, monkeypatch):
    """A second vector on the CPU stands for one on a GPU."""
    monkeypatch.setattr(hogwild, "is_on_cpu", lambda optimizer: False)
    session = run_session(spec, tmp_path, hogwild="shared")
    for name, optimizer in session.agent.learner.train_state.optimizers.items():
        unit = session.strategy._state.units[name]
        assert optimizer.flat.vector.data_ptr() != unit.vector.data_ptr()
        assert torch.equal(optimizer.flat.vector, unit.vector)
    check_is(whole, session)


@BOTH
@ONE_EACH
def test_one_worker_that_is_resumed_goes_on_as_if_nothing_had_happened(spec, whole, mode, tmp_path):
    def stop(session):
        if session.clock.frame >= 300:
            session.board.request_stop()

    stopped = run_session(spec, tmp_path, on_row=stop, hogwild=mode)
    assert 300 <= stopped.clock.frame < 400
    check_is(whole, run_session(spec, tmp_path, resume=True, hogwild=mode))
