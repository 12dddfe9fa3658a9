"""Every algorithm trains under Hogwild! without extra code."""

import pytest
import torch

from slm_lab.parallel.hogwild import strategy as hogwild
from slm_lab.parallel.hogwild.strategy import HogwildStrategy
from tests.contract.runs import assert_same_run, stop_at
from tests.contract.table import ALGORITHM_ROWS, Row, training_cases
from tests.support import run_session

MODES = ("shared", "synced")
BOTH = pytest.mark.parametrize("mode", MODES)
EVERY = pytest.mark.parametrize(
    ("case", "mode"),
    [
        pytest.param(*case.values, MODES[index % 2], id=case.id, marks=case.marks)
        for index, case in enumerate(training_cases())
    ],
)
"""Every row in one of the modes; both modes on every algorithm."""


@pytest.fixture
def spec(case):
    """The spec of a row, with an optimizer whose state can be shared."""
    data = ALGORITHM_ROWS[case[0]][case[1]].data
    net = data["agent"].get("net")
    if net is None or net["optim_spec"]["name"].startswith("Global"):
        return Row(data).spec
    optim_spec = {"name": "GlobalAdam", "lr": 1e-3}
    return Row(
        {**data, "agent": {**data["agent"], "net": {**net, "optim_spec": optim_spec}}}
    ).spec


@pytest.fixture
def whole(case, spec, whole_runs, tmp_path):
    """The run of `spec` by one process."""
    if spec == ALGORITHM_ROWS[case[0]][case[1]].spec:
        return whole_runs.get(*case)
    return run_session(spec, tmp_path / "whole")


def check_is(whole, session):
    """The same rows, less the columns of the mode, and the same weights, to the last
    bit."""
    assert_same_run(session, whole, without=HogwildStrategy.columns)


@EVERY
def test_one_worker_equals_a_single_process(spec, whole, mode, tmp_path):
    check_is(whole, run_session(spec, tmp_path, hogwild=mode))


ONE_EACH = pytest.mark.parametrize(
    "case", [(name, next(iter(rows))) for name, rows in ALGORITHM_ROWS.items()]
)


@ONE_EACH
def test_a_refreshed_replica_equals_the_global_network(
    spec, whole, tmp_path, monkeypatch
):
    """A second vector on the CPU stands for one on a GPU."""
    monkeypatch.setattr(hogwild, "is_on_cpu", lambda optimizer: False)
    session = run_session(spec, tmp_path, hogwild="shared")
    for name, optimizer in session.agent.learner.train_state.optimizers.items():
        shared = session.strategy._state.networks[name]
        assert optimizer.flat.vector.data_ptr() != shared.vector.data_ptr()
        assert torch.equal(optimizer.flat.vector, shared.vector)
    check_is(whole, session)


@BOTH
@ONE_EACH
def test_a_resumed_worker_equals_an_uninterrupted_one(spec, whole, mode, tmp_path):
    stopped = run_session(spec, tmp_path, on_row=stop_at(200), hogwild=mode)
    assert 200 <= stopped.clock.frame < 300
    check_is(whole, run_session(spec, tmp_path, resume=True, hogwild=mode))
